// Live totals of the share editor. Numbers are integer thousandths of a percent; the server has the last word.
//
// <form data-editor="ID of a JSON block"> reads {pools: [{slug, name, entitled_mgpus}], rows: [{slug, name, share, overrides?: {pool: share}}]}:
// entitled_mgpus is what 100 % of the parent is worth from the date of the change to the period's end, per pool, null: not known;
// share is the share now. Without this script the form posts the same fields and the server answers the same.
//   input[data-share=SLUG]                       the new share, in percent       (name share.SLUG)
//   input[data-override=SLUG][data-pool=POOL]    share in one pool, empty: as overall (name share.SLUG.POOL)
//   data[data-worth=POOL]                        entitled_mgpus of a pool from another date on, empty: not known; the server swaps it in
//   [data-delta=SLUG] [data-entitled=SLUG] [data-change=SLUG]     filled in per row
//   [data-total] [data-rest], with =POOL for a pool               totals and reserve
//   [data-over] > span                           the sentence that names the row that binds; hidden while all fits.
//        Its words are the form's data-over-row, data-over-all and data-wrong, with %total %over %row %fits in them
//   svg.split with rect[data-seg=SLUG], text[data-seg-text=SLUG], rect[data-edge=SLUG], rect[data-seg=""] (reserve)
//   button[data-needs-sum]                       disabled over 100 %      button[data-reset]
(() => {
  const WHOLE = 100000, CREDIT = 3600000;
  const form = document.querySelector('form[data-editor]'); if (!form) return;
  const data = JSON.parse(document.getElementById(form.dataset.editor).textContent), lang = document.documentElement.lang || 'en';
  const find = sel => form.querySelector(sel), share = r => find(`[data-share="${r.slug}"]`), override = (r, p) => find(`[data-override="${r.slug}"][data-pool="${p.slug}"]`);
  const worth = p => { const known = find(`[data-worth="${p.slug}"]`)?.value ?? p.entitled_mgpus; return known === '' || known === null ? NaN : Number(known); };
  const point = (1.1).toLocaleString(lang)[1];
  const show = (m, digits = 3) => (m / 1000).toLocaleString(lang, {minimumFractionDigits: digits, maximumFractionDigits: 3, useGrouping: false}).replace('-', '−');
  const typed = m => (m / 1000).toFixed(3).replace('.', point);
  const signed = (m, text) => (m > 0 ? '+' : m < 0 ? '−' : '') + text(Math.abs(m));
  const grouped = n => Number.isNaN(n) ? '–' : Math.round(n).toLocaleString(lang);
  // thousandths, or null for what is no number from 0 to 100 with three decimals
  function milli(text) {
    const t = text.trim().replace(',', '.').replace(/\s*%$/, ''); if (!/^\d{1,3}(\.\d{0,3})?$/.test(t)) return null;
    const [whole, part = ''] = t.split('.'), m = Number(whole) * 1000 + Number(part.padEnd(3, '0')); return m <= WHOLE ? m : null;
  }
  const fields = () => data.rows.map(r => ({row: r, now: r.share, value: milli(share(r).value), by: new Map(data.pools.map(p => [p.slug, override(r, p)?.value.trim() ? milli(override(r, p).value) : null]))}));
  const in_ = (f, pool) => f.by.get(pool.slug) ?? f.value ?? 0;
  const put = (sel, text, over) => { const e = find(sel); if (e) { e.textContent = text; if (over !== undefined) e.classList.toggle('over', over); } };

  // over 100 %: the row that rose most is the one that binds
  function binds(list, value, total, name) {
    const f = list.reduce((a, b) => (value(b) - b.now > value(a) - a.now ? b : a)), over = total - WHOLE, fits = value(f) - over;
    const words = form.dataset;
    const text = fits >= 0 ? words.overRow : words.overAll;
    return text.replaceAll('%total', name).replaceAll('%over', show(over)).replaceAll('%row', f.row.name).replaceAll('%fits', show(fits));
  }
  function totals(list) {
    let message = '';
    const one = (key, name, value) => {
      const sum = list.reduce((a, f) => a + value(f), 0), over = sum > WHOLE;
      put(key ? `[data-total="${key}"]` : '[data-total=""]', show(sum) + ' %', over); put(key ? `[data-rest="${key}"]` : '[data-rest=""]', show(WHOLE - sum) + ' %', over);
      if (over && !message) message = binds(list, value, sum, name);
    };
    one('', form.dataset.totalName || 'The total', f => f.value ?? 0);
    for (const p of data.pools) one(p.slug, p.name, f => in_(f, p));
    return message;
  }
  function rows(list) {
    let wrong = '';
    for (const f of list) {
      const box = share(f.row), d = (f.value ?? f.now) - f.now, bad = f.value === null;
      box.toggleAttribute('aria-invalid', bad); if (bad) box.setAttribute('aria-invalid', 'true');
      if (bad && !wrong) wrong = form.dataset.wrong.replace('%row', f.row.name);
      box.classList.toggle('changed', d !== 0); put(`[data-delta="${f.row.slug}"]`, signed(d, show).replace(/^0.*/, '0'));
      let entitled = 0, before = 0;
      for (const p of data.pools) {
        const field = override(f.row, p), was = f.row.overrides?.[p.slug] ?? f.now;
        if (field) { const no = field.value.trim() !== '' && f.by.get(p.slug) === null; field.placeholder = typed(f.value ?? f.now); field.classList.toggle('changed', field.value.trim() !== ''); field.toggleAttribute('aria-invalid', no); if (no) { field.setAttribute('aria-invalid', 'true'); wrong ||= form.dataset.wrong.replace('%row', f.row.name); } }
        entitled += worth(p) / WHOLE * in_(f, p); before += worth(p) / WHOLE * was;
      }
      put(`[data-entitled="${f.row.slug}"]`, grouped(entitled / CREDIT)); put(`[data-change="${f.row.slug}"]`, signed(Math.round((entitled - before) / CREDIT), grouped));
    }
    return wrong;
  }
  function split(list) {
    const svg = find('svg.split'); if (!svg) return;
    const total = list.reduce((a, f) => a + (f.value ?? 0), 0), scale = Math.max(total, WHOLE), pct = m => m / scale * 100; let x = 0;
    const set = (sel, values) => { const e = svg.querySelector(sel); for (const [k, v] of Object.entries(values)) e?.setAttribute(k, v); return e; };
    for (const f of list) {
      const s = f.row.slug, w = pct(f.value ?? 0); set(`[data-seg="${s}"]`, {x: x + '%', width: w + '%'});
      const text = set(`[data-seg-text="${s}"]`, {x: x + .8 + '%'}), long = `${f.row.name} ${show(f.value ?? 0, 0)}`;
      if (text) { text.textContent = long; if (text.getComputedTextLength() + 16 > svg.clientWidth * w / 100) text.textContent = ''; }
      x += w; set(`[data-edge="${s}"]`, {x: x + '%', 'aria-valuenow': ((f.value ?? 0) / 1000).toFixed(3), 'aria-valuetext': long + ' %'});
    }
    set('[data-seg=""]', {x: x + '%', width: Math.max(0, 100 - x) + '%'});
  }
  function redraw() {
    const list = fields(), wrong = rows(list), over = totals(list), say = find('[data-over]'), text = wrong || over; split(list);
    if (say) { say.hidden = !text; say.querySelector('span').textContent = text; }
    for (const b of form.querySelectorAll('[data-needs-sum]')) b.disabled = Boolean(text);
  }
  function step(edge, by) {
    const row = data.rows.find(r => r.slug === edge.dataset.edge), box = share(row); box.value = typed(Math.min(WHOLE, Math.max(0, (milli(box.value) ?? row.share) + by))); redraw();
  }
  for (const edge of form.querySelectorAll('[data-edge]')) {
    edge.addEventListener('keydown', e => { const by = {ArrowLeft: -100, ArrowDown: -100, ArrowRight: 100, ArrowUp: 100}[e.key]; if (by) { e.preventDefault(); step(edge, e.shiftKey ? by * 10 : by); } });
    edge.addEventListener('pointerdown', e => { edge.setPointerCapture(e.pointerId); edge.dataset.last = e.clientX; e.preventDefault(); edge.focus(); });
    edge.addEventListener('pointermove', e => {
      if (!edge.hasPointerCapture(e.pointerId)) return;
      const by = Math.round((e.clientX - edge.dataset.last) / edge.closest('svg').clientWidth * 1000) * 100; // tenths of a percent
      if (by) { edge.dataset.last = Number(edge.dataset.last) + by / WHOLE * edge.closest('svg').clientWidth; step(edge, by); }
    });
  }
  form.addEventListener('input', redraw);
  form.addEventListener('click', e => {
    if (!e.target.closest('[data-reset]')) return;
    for (const r of data.rows) { share(r).value = typed(r.share); for (const p of data.pools) { const f = override(r, p); if (f) f.value = r.overrides?.[p.slug] == null ? '' : typed(r.overrides[p.slug]); } }
    redraw();
  });
  addEventListener('htmx:afterSettle', redraw);
  addEventListener('resize', () => split(fields()));
  document.fonts.ready.then(redraw);
})();
