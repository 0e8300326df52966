// Light or dark, set before the first paint: ?theme= in the address, else the reader's choice, else the system's.
(() => {
  const root = document.documentElement;
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const asked = new URLSearchParams(location.search).get('theme');
  const kept = () => { try { return localStorage.getItem('theme'); } catch { return null; } };
  const set = theme => {
    if (root.dataset.bsTheme === theme) return;
    root.dataset.bsTheme = theme;
    dispatchEvent(new Event('themechange'));
  };
  const wanted = () => [asked, kept()].find(t => t === 'dark' || t === 'light') || (dark.matches ? 'dark' : 'light');
  root.dataset.bsTheme = wanted();
  dark.addEventListener('change', () => set(wanted()));
  addEventListener('click', e => {
    if (!e.target.closest('[data-theme-toggle]')) return;
    const next = root.dataset.bsTheme === 'dark' ? 'light' : 'dark';
    try { localStorage.setItem('theme', next); } catch { /* not kept, still switched */ }
    set(next);
  });
})();
