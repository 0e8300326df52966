// Small behaviours that all pages share. Everything hangs on data attributes and on the document,
// so that fragments swapped in by htmx need no set-up. docs/ui.md lists the attributes.
(() => {
  const $ = (sel, at = document) => at.querySelector(sel);
  const $$ = (sel, at = document) => [...at.querySelectorAll(sel)];
  const remember = (key, value) => { try { sessionStorage.setItem(key, value); } catch { /* not kept */ } };
  const recall = key => { try { return sessionStorage.getItem(key); } catch { return null; } };

  // keyboard: "/" searches, Esc closes what floats
  const typing = () => /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName);
  addEventListener('keydown', e => {
    if (e.key === '/' && !typing() && !e.ctrlKey && !e.metaKey) {
      const field = $('.al-top .al-search input');
      if (field?.offsetParent) { e.preventDefault(); field.focus(); }
    }
    if (e.key === 'Escape') { menu(false); help(null); }
  });

  // the side bar on a phone
  function menu(open) {
    const side = $('#side'), button = $('[data-menu]');
    if (!side || !button) return;
    if (!open && side.classList.contains('open') && side.contains(document.activeElement)) button.focus();
    side.classList.toggle('open', open);
    button.setAttribute('aria-expanded', String(open));
    if (open) $('a', side)?.focus();
  }

  // the formula behind a number: opens on focus, hover and touch, and stays while the pointer is in it.
  // The mark is a link to where the guide explains it; a first touch only opens.
  let pop = null, shown = null, closing = 0;
  function help(link) {
    clearTimeout(closing);
    if (!pop) {
      pop = document.createElement('div');
      pop.className = 'al-pop'; pop.id = 'al-pop'; pop.setAttribute('role', 'tooltip'); pop.hidden = true;
      document.body.append(pop);
    }
    for (const b of $$('.q[aria-describedby]')) b.removeAttribute('aria-describedby');
    pop.hidden = !link; shown = link;
    if (!link) return;
    const more = Object.assign(document.createElement('a'), {href: link.href, target: '_blank', textContent: link.dataset.more, tabIndex: -1});
    pop.replaceChildren(link.dataset.help, more); // the mark itself is what the keyboard reaches
    link.setAttribute('aria-describedby', 'al-pop');
    const at = link.getBoundingClientRect();
    const left = Math.min(at.left - 12, document.documentElement.clientWidth - pop.offsetWidth - 8);
    const below = at.bottom + 8 + pop.offsetHeight < innerHeight;
    pop.style.left = Math.max(8, left) + scrollX + 'px';
    pop.style.top = (below ? at.bottom + 8 : at.top - 8 - pop.offsetHeight) + scrollY + 'px';
  }
  const asks = e => e.target.closest?.('.q[data-help]'), within = e => e.target.closest?.('.al-pop');
  addEventListener('mouseover', e => { const b = asks(e); if (b) { if (b !== shown) help(b); clearTimeout(closing); } else if (within(e)) clearTimeout(closing); });
  addEventListener('mouseout', e => { if (asks(e) || within(e)) { clearTimeout(closing); closing = setTimeout(help, 250, null); } });
  addEventListener('focusin', e => { if (!within(e)) help(asks(e) ?? null); });
  let touched = null; // what a touch found closed
  addEventListener('pointerdown', e => { const b = asks(e); touched = e.pointerType !== 'mouse' && b && b !== shown ? b : null; });

  // folding rows of a tree: a row is shown while every row above it, up to the root, is open
  const open = row => !row || $('[data-fold]', row)?.getAttribute('aria-expanded') !== 'false';
  function refold(table) {
    const rows = new Map($$('tr[data-row]', table).map(r => [r.dataset.row, r]));
    for (const row of $$('tr[data-parent]', table)) {
      let up = rows.get(row.dataset.parent), shown = true;
      for (; up; up = rows.get(up.dataset.parent)) shown &&= open(up);
      row.hidden = !shown;
    }
  }
  function foldAs(button, expanded) {
    button.setAttribute('aria-expanded', String(expanded));
    refold(button.closest('table'));
  }
  function restoreFolds(at) {
    for (const b of $$('[data-fold]', at)) if (recall('fold:' + b.dataset.fold) === 'false') foldAs(b, false);
  }

  // choices inside a page (no address of their own); links in a segment need none of this
  function press(button) {
    for (const other of $$('button', button.parentElement)) other.setAttribute('aria-pressed', String(other === button));
  }

  addEventListener('click', e => {
    const hit = sel => e.target.closest(sel);
    let b;
    if ((b = hit('[data-menu]'))) menu(b.getAttribute('aria-expanded') !== 'true');
    else if (!hit('#side')) menu(false);
    if ((b = hit('[data-fold]'))) {
      const expanded = b.getAttribute('aria-expanded') !== 'true';
      foldAs(b, expanded); remember('fold:' + b.dataset.fold, String(expanded));
    }
    if ((b = hit('.al-seg button'))) press(b);
    if ((b = hit('[data-dialog]'))) $('#' + b.dataset.dialog)?.showModal();
    if ((b = hit('[data-close]'))) b.closest('dialog')?.close();
    if (hit('[data-print]')) print();
    if ((b = hit('[data-fill-user]'))) {
      const form = $('form[data-sign-in]');
      form.elements.username.value = b.dataset.fillUser; form.elements.password.value = b.dataset.fillPassword;
      $('[type=submit]', form).focus();
    }
    if ((b = hit('.q[data-help]')) && b === touched) { e.preventDefault(); touched = null; help(b); }
    else if (!b && !hit('.al-pop')) help(null);
  });

  // a form that writes itself into the address as it is changed (filters)
  addEventListener('change', e => { const f = e.target.closest('form[data-auto]'); if (f) f.requestSubmit(); });
  addEventListener('submit', e => {
    if (!e.target.matches('form[data-auto]')) return;
    for (const field of $$('input, select', e.target)) if (!field.value) field.disabled = true; // no "?q=" for nothing
  });
  addEventListener('pageshow', () => { for (const f of $$('form[data-auto] :disabled')) f.disabled = false; });

  // a table that is filtered as one types; nothing is asked from the server
  addEventListener('input', e => {
    const field = e.target.closest('[data-filter]'); if (!field) return;
    const words = field.value.trim().toLowerCase().split(/\s+/), table = $('#' + field.dataset.filter);
    for (const was of $$('[data-was]', table)) was.hidden = true;
    if (!field.value.trim()) { for (const r of $$('tbody tr', table)) r.hidden = false; refold(table); return; }
    const fits = text => words.every(w => text.toLowerCase().includes(w));
    for (const row of $$('tbody tr', table)) {
      const now = fits(row.dataset.search || row.textContent);
      const was = now ? null : $$('[data-was]', row).find(one => fits(one.dataset.was)); // what it was called
      row.hidden = !now && !was;
      if (was) was.hidden = false;
    }
  });

  // Live: elements with data-live="seconds" are asked again while the tab is visible; the dot tells how it went
  const due = new WeakMap();
  const beat = () => {
    if (document.hidden || !window.htmx) return;
    const t = Date.now();
    for (const el of $$('[data-live]')) {
      if (!due.has(el)) due.set(el, t + el.dataset.live * 1000);
      if (t < due.get(el)) continue;
      due.set(el, t + el.dataset.live * 1000);
      htmx.trigger(el, 'live');
    }
  };
  setInterval(beat, 1000);
  document.addEventListener('visibilitychange', beat);
  function dot(ok) {
    const live = $('[data-live-dot]'); if (!live) return;
    const clock = $('time', live), word = $('[data-live-word]', live);
    $('i', live).classList.toggle('off', !ok);
    word.textContent = ok ? word.dataset.liveWord : word.dataset.lateWord;
    if (ok) {
      const zone = live.dataset.zone || undefined;
      clock.textContent = new Intl.DateTimeFormat('en-GB', {timeStyle: 'medium', timeZone: zone}).format(new Date());
    }
  }
  addEventListener('liveresult', e => dot(e.detail)); // pages that ask for JSON themselves
  addEventListener('htmx:afterRequest', e => { if (e.target.matches?.('[data-live]')) dot(e.detail.successful); });
  // the same answer again: nothing is touched, so focus, selection and scroll stay where they are
  const last = new WeakMap();
  addEventListener('htmx:beforeSwap', e => {
    const el = e.detail.target, text = e.detail.xhr.responseText;
    if (el.matches('[data-live]') && last.get(el) === text) e.detail.shouldSwap = false;
    if (e.detail.xhr.status === 429) e.detail.shouldSwap = true; // it says how long to wait
    last.set(el, text);
  });
  addEventListener('htmx:afterSwap', e => { restoreFolds(e.target); if (shown && !shown.isConnected) help(null); });
  restoreFolds(document);
})();
