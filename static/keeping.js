// What was typed into a form isn't lost when the session has ended meanwhile: what is sent is kept in
// this tab; if signing in comes between, it is put back into the form that it was typed into, for the
// same person only. Where the server has answered, it is forgotten.
(() => {
  const KEY = 'typed', HOURS = 12;
  const $ = sel => document.querySelector(sel);
  const read = () => { try { return JSON.parse(sessionStorage.getItem(KEY)); } catch { return null; } };
  const write = kept => { try { sessionStorage.setItem(KEY, JSON.stringify(kept)); } catch { /* not kept */ } };
  const forget = () => { try { sessionStorage.removeItem(KEY); } catch { /* there was nothing */ } };
  const forms = () => [...document.querySelectorAll('form[method=post]')];
  const ticked = field => /^(checkbox|radio)$/.test(field.type);
  const fields = form => [...form.elements].filter(f => f.name && f.name !== 'csrfmiddlewaretoken' && !/^(password|file|submit|button|image|fieldset)$/.test(f.type));
  const values = field => field.type === 'select-multiple' ? [...field.selectedOptions].map(o => o.value) : field.value;
  let edited = null;

  function keep(form) {
    const typed = fields(form).map(f => [f.name, values(f), ticked(f) && f.checked]);
    write({path: location.pathname, form: forms().indexOf(form), user: document.body.dataset.user, at: Date.now(), typed});
  }

  function put(field, [, value, checked]) {
    const before = JSON.stringify([values(field), field.checked]);
    if (ticked(field)) field.checked = checked;
    else if (field.type === 'select-multiple') for (const o of field.options) o.selected = value.includes(o.value);
    else field.value = value;
    if (JSON.stringify([values(field), field.checked]) === before) return;
    for (const name of ['input', 'change']) field.dispatchEvent(new Event(name, {bubbles: true}));
  }

  function back(kept) {
    const form = forms()[kept.form], left = [...kept.typed];
    if (!form) return;
    for (const field of fields(form)) {
      const at = left.findIndex(([name, value]) => name === field.name && (!ticked(field) || value === field.value));
      if (at >= 0) put(field, left.splice(at, 1)[0]);
    }
    $('#typed-is-back')?.removeAttribute('hidden');
  }

  addEventListener('submit', e => {
    if (e.target.method === 'post' && !e.target.matches('[data-sign-in]')) keep(e.target);
  });
  addEventListener('input', e => { edited = e.target.form ?? edited; });
  addEventListener('signed-out', () => $('#signed-out')?.removeAttribute('hidden'));
  addEventListener('click', e => { if (edited?.isConnected && e.target.closest?.('#signed-out a')) keep(edited); });

  addEventListener('DOMContentLoaded', () => {
    const kept = read();
    if (!kept) return;
    if ($('[data-sign-in], [data-not-sent]')) { write({...kept, away: true}); return; }
    const here = kept.away && kept.path === location.pathname;
    const fresh = Date.now() - kept.at < HOURS * 3600e3 && kept.user === document.body.dataset.user;
    if (here && fresh) back(kept);
    if (here || !fresh || !kept.away) forget();
  });
})();
