// The days of a simulation's pictures: a link of [data-days] shows others in place. Without this file the links load the page anew.
(() => {
  const show = (nav, link) => {
    const first = Number(new URL(link.href).searchParams.get('day')), shown = Number(nav.dataset.days);
    for (const a of nav.querySelectorAll('a')) {
      const n = Number(a.dataset.day);
      if (n >= first && n < first + shown) a.setAttribute('aria-current', 'true'); else a.removeAttribute('aria-current');
    }
    for (const el of document.querySelectorAll('.plan[data-src]')) {
      const url = new URL(el.dataset.src, location.href); url.searchParams.set('day', String(first));
      el.dataset.src = url.pathname + url.search; el.dispatchEvent(new Event('planask'));
    }
    for (const a of document.querySelectorAll('a[data-runs]')) { const url = new URL(a.href); url.searchParams.set('day', String(first)); a.href = url.pathname + url.search; }
    const here = new URL(location.href); here.searchParams.set('day', String(first)); history.replaceState(null, '', here);
    const say = document.getElementById('days-shown'); if (say) say.textContent = link.dataset.says;
  };
  addEventListener('click', e => {
    const link = e.target.closest('[data-days] a[data-day]');
    if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
    e.preventDefault(); show(link.closest('[data-days]'), link);
  });
  addEventListener('keydown', e => {
    const link = e.target.closest?.('[data-days] a[data-day]'); if (!link || !/^Arrow(Left|Right)$/.test(e.key)) return;
    const next = e.key === 'ArrowRight' ? link.nextElementSibling : link.previousElementSibling;
    if (next) { e.preventDefault(); next.focus(); show(link.closest('[data-days]'), next); }
  });
})();
