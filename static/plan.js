// GPU × time on canvas: what ran, what runs and what is planned, in one axis. Rows are GPUs by pool and node.
// One vocabulary of patterns: solid protected · hatch interruptible · pale hatch unfunded · outlined pale planned ·
// hollow parked · dots real time · cross down or draining · red edge preempted · red line shortfall.
//
// <div class="plan" data-plan="ID of a JSON block" or data-src="URL" [data-every="30"] [data-pin="JOB"]>
// reads (instants ISO 8601 with Z, half-open; gpu numbers count all rows of the grid from 0):
//   now, from, to, timestep_minutes, zone (IANA; default UTC)
//   pools    [{slug, name, first_gpu, gpus}]        nodes [{name, first_gpu, gpus}]        both in row order
//   programs [{slug, name, hue}]                    hue 1…12, 0 for all others
//   bars     [{job, run?, label, url?, budget, program, shade (0…2), first_gpu, gpus, start, end,
//              protected_until?, unfunded_from?, planned?, realtime?, preempted?, parked? [[start, end]],
//              end_text?, tip? [[name, value]]}]    one per run or placement, and per interval of a service
//   down     [{first_gpu, gpus, start, end, label, why}]
//   short    [{first_gpu, start, end, gpus, label}] where a service lacks GPUs; the mark stands above first_gpu
(() => {
  const GAP = 10, HEAD = 34, STRIP = 56, FONT = 'Inter, system-ui, sans-serif', MINUTE = 6e4;
  const SHADES = [1, .8, .62];
  const WORDS = {
    past: 'what ran', ahead: 'plan', now: 'now', held: ['held', 'GPUs'], budget: 'Budget', gpus: 'GPUs', on: 'on', to: 'to',
    starts: 'Starts', started: 'Started', ended: 'Ended', ends: 'Ends, estimate', planned: 'planned', preempted: 'preempted',
    over: 'ended', unfunded: 'running, unfunded', until: 'running, protected until', since: 'running, interruptible since',
    realtime: 'real time', run: 'run', hint: 'Click opens its story · ← → next job', short: 'short by', down: 'down'};

  const css = name => getComputedStyle(document.documentElement).getPropertyValue('--al-' + name).trim();
  const rgb = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
  const mix = (a, b, part) => { const x = rgb(a), y = rgb(b); return '#' + x.map((v, i) => Math.round(v * part + y[i] * (1 - part)).toString(16).padStart(2, '0')).join(''); };

  // a small tile, drawn at four times its size so that it stays sharp on dense screens
  function tile(g, size, ground, paint) {
    const d = document.createElement('canvas'), k = 4; d.width = d.height = size * k;
    const x = d.getContext('2d'); x.scale(k, k); x.fillStyle = ground; x.fillRect(0, 0, size, size); paint(x);
    const p = g.createPattern(d, 'repeat'); p.setTransform(new DOMMatrix().scale(1 / k)); return p;
  }
  const hatch = (g, fg, bg, width) => tile(g, 7, bg, x => {
    x.strokeStyle = fg; x.lineWidth = width; x.beginPath();
    for (const o of [-7, 0, 7]) { x.moveTo(o - 1, 8); x.lineTo(o + 8, -1); } x.stroke();
  });
  const cross = (g, fg, bg) => tile(g, 6, bg, x => { x.strokeStyle = fg; x.lineWidth = .8; x.beginPath(); x.moveTo(0, 0); x.lineTo(6, 6); x.moveTo(6, 0); x.lineTo(0, 6); x.stroke(); });
  const dots = (g, fg, bg) => tile(g, 8, bg, x => { x.fillStyle = fg; for (const [a, b] of [[2, 2], [6, 6]]) { x.beginPath(); x.arc(a, b, .9, 0, 7); x.fill(); } });

  // the colours of the theme, and one set of paints per hue and shade
  function palette(g) {
    const c = Object.fromEntries(['surface', 'ink', 'ink-2', 'ink-3', 'line', 'line-2', 'red', 'grey', 'sunken', 'bg'].map(n => [n, css(n)]));
    const made = new Map(), tone = (hue, part) => mix(hue, c.surface, part);
    c.cross = cross(g, c.grey, c.sunken);
    c.of = (hue, shade) => {
      const key = hue * 3 + shade; if (made.has(key)) return made.get(key);
      const h = css('h' + hue) || c['ink-3'], k = SHADES[shade] ?? .62;
      const set = {fill: tone(h, k), mid: tone(h, .4 * k), edge: tone(h, .75 * k),
        inter: hatch(g, tone(h, .26 * k), tone(h, .58 * k), 1.6), interPlan: hatch(g, tone(h, .08 * k), tone(h, .24 * k), 1.6),
        free: hatch(g, tone(h, .48), tone(h, .13), 1.1), real: dots(g, c.surface, tone(h, k)), realPlan: dots(g, c.surface, tone(h, .4 * k))};
      made.set(key, set); return set;
    };
    return c;
  }

  function parse(d) {
    const t = s => s == null ? null : Date.parse(s), hue = Object.fromEntries(d.programs.map(p => [p.slug, p.hue]));
    const span = o => ({...o, start: t(o.start), end: t(o.end)});
    const bars = d.bars.map(o => ({...span(o), hue: hue[o.program] ?? 0, shade: o.shade ?? 0, prot: t(o.protected_until), unf: t(o.unfunded_from), parked: (o.parked || []).map(p => p.map(t))}));
    const rows = d.nodes.reduce((n, x) => Math.max(n, x.first_gpu + x.gpus), 0);
    return {...d, now: t(d.now), from: t(d.from), to: t(d.to), step: d.timestep_minutes * MINUTE, rows, bars, down: (d.down || []).map(span), short: (d.short || []).map(span), words: {...WORDS, ...d.words}};
  }

  class Plan {
    constructor(el) {
      this.el = el; this.pair = el.closest('.pair'); this.mode = 'fit'; this.sel = null; this.scroll = 0;
      this.box = make('div', 'plan-scroll'); this.view = make('div', 'plan-view'); this.fill = make('div');
      this.cv = make('canvas'); this.over = make('canvas'); this.say = make('div', 'sr'); this.card = make('div', 'hover');
      this.say.setAttribute('aria-live', 'polite'); this.card.hidden = true; this.over.setAttribute('aria-hidden', 'true');
      this.cv.tabIndex = 0; this.cv.setAttribute('role', 'application'); this.cv.setAttribute('aria-label', el.dataset.label || '');
      this.view.append(this.cv, this.over); this.box.append(this.view, this.fill); el.append(this.box, this.card, this.say);
      this.box.addEventListener('scroll', () => { this.scroll = this.box.scrollTop; this.draw(); this.pick(this.sel); });
      this.cv.addEventListener('pointermove', e => this.move(e)); this.cv.addEventListener('pointerdown', e => this.press(e));
      this.cv.addEventListener('pointerup', e => this.lift(e)); this.cv.addEventListener('pointerleave', () => { if (!this.drag) this.pick(this.pinned); });
      this.cv.addEventListener('pointercancel', () => { this.drag = null; this.pick(null); });
      this.cv.addEventListener('dblclick', () => this.zoom()); this.cv.addEventListener('keydown', e => this.key(e));
      new ResizeObserver(() => { if (this.P && el.clientWidth !== this.W) this.layout(); }).observe(el);
    }
    load(data) {
      const first = !this.P, old = this.P, key = this.sel && this.sel.job + '/' + this.sel.run;
      this.P = parse(data); const P = this.P;
      this.clock = format(P.zone, {hour: '2-digit', minute: '2-digit'}); this.dated = format(P.zone, {weekday: 'short', hour: '2-digit', minute: '2-digit'}); this.dayOf = format(P.zone, {day: 'numeric'});
      this.shift = offset(P.from, P.zone);
      if (first || (this.t0 === old.from && this.t1 === old.to)) { this.t0 = P.from; this.t1 = P.to; }
      this.sums = this.held(); this.sel = null; this.pinned = null; this.layout();
      const pin = new URLSearchParams(location.hash.slice(1)).get('job') || this.el.dataset.pin;
      const at = b => b.start <= P.now && P.now < b.end;
      if (pin) this.pinned = P.bars.find(b => String(b.job) === pin && at(b)) || P.bars.find(b => String(b.job) === pin) || null;
      this.pick((key && P.bars.find(b => b.job + '/' + b.run === key)) || (this.W > 640 ? this.pinned : null));
    }

    // geometry
    layout() {
      const {P} = this, fit = Math.max(1, Math.min(14, Math.floor(1000 / P.rows))), nodes = Math.max(fit, Math.ceil(32 / Math.max(...P.nodes.map(n => n.gpus))));
      this.W = this.el.clientWidth; this.gutter = this.W < 560 ? 58 : 74; this.row = {fit, nodes, gpus: Math.max(nodes, 12)}[this.mode];
      this.top = HEAD + STRIP + 14; this.full = this.top + P.rows * this.row + GAP * (P.pools.length - 1) + 2;
      this.H = this.full > 1200 ? Math.min(this.full, Math.max(480, innerHeight - 96)) : this.full;
      this.box.style.height = this.H + 'px'; this.fill.style.height = this.full + 'px'; this.scroll = this.box.scrollTop;
      const dpr = devicePixelRatio || 1; this.W = this.box.clientWidth;
      for (const c of [this.cv, this.over]) { c.style.width = this.W + 'px'; c.style.height = this.H + 'px'; c.width = Math.round(this.W * dpr); c.height = Math.round(this.H * dpr); }
      this.g = this.cv.getContext('2d'); this.o = this.over.getContext('2d');
      for (const g of [this.g, this.o]) g.setTransform(dpr, 0, 0, dpr, 0, 0);
      this.C = palette(this.g); this.draw(); this.pick(this.sel);
    }
    x(t) { return this.gutter + (t - this.t0) / (this.t1 - this.t0) * (this.W - this.gutter - 1); }
    time(px) { return this.t0 + (px - this.gutter) / (this.W - this.gutter - 1) * (this.t1 - this.t0); }
    y(gpu) { let y = this.top + gpu * this.row - this.scroll; const {pools} = this.P; for (let i = 1; i < pools.length && gpu >= pools[i].first_gpu; i++) y += GAP; return y; }
    // the part of an interval that is in view, or null
    seen(o) {
      const a = Math.max(o.start, this.t0), b = Math.min(o.end, this.t1), Y = this.y(o.first_gpu), h = o.gpus * this.row;
      return b > a && Y < this.H && Y + h > this.top - GAP ? {a, b, x: this.x(a), w: this.x(b) - this.x(a), y: Y, h} : null;
    }

    draw() {
      const {g, C, P, W, H} = this; g.fillStyle = C.surface; g.fillRect(0, 0, W, H); g.textBaseline = 'alphabetic';
      g.save(); g.beginPath(); g.rect(0, this.top - GAP, W, H); g.clip();
      for (const p of P.pools) { g.fillStyle = C.bg; g.fillRect(this.gutter, this.y(p.first_gpu), W - this.gutter - 1, p.gpus * this.row); }
      this.names(); g.beginPath(); g.rect(this.gutter - 1, this.top - GAP, W - this.gutter + 1, H); g.clip();
      for (const d of P.down) { const s = this.seen(d); if (s) { g.fillStyle = C.cross; g.fillRect(s.x, s.y, s.w, s.h); } }
      for (const b of P.bars) this.bar(b);
      for (const s of P.short) { const v = this.seen({...s, gpus: 1}); if (v) { g.fillStyle = C.red; g.fillRect(v.x, v.y - 4, v.w, 3); } }
      g.strokeStyle = C['line-2']; g.lineWidth = 1;
      for (const p of P.pools) g.strokeRect(this.gutter - .5, this.y(p.first_gpu) - .5, W - this.gutter, p.gpus * this.row + 1);
      for (const b of P.bars) this.label(b);
      g.restore(); this.axis(); this.strip(); this.nowLine();
    }
    text(t, x, y, colour, weight = '400', align = 'left') { const {g} = this; g.font = `${weight} 11px ${FONT}`; g.textAlign = align; g.fillStyle = colour; g.fillText(t, x, y); }
    // each node's name where there is room, else every second, fourth … of its pool; each GPU's number in tall rows
    names() {
      const {P, C, row} = this; let step = 1; const tall = Math.max(...P.nodes.map(n => n.gpus)) * row;
      while (step * tall < (row >= 4 ? 24 : 40)) step *= 2;
      for (const pool of P.pools) {
        const nodes = P.nodes.filter(n => n.first_gpu >= pool.first_gpu && n.first_gpu < pool.first_gpu + pool.gpus);
        nodes.forEach((n, i) => {
          const Y = this.y(n.first_gpu); if (Y > this.H) return;
          if (row >= 12) for (let k = 1; k < n.gpus; k++) this.text(String(k), this.gutter - 6, Y + k * row + 10, C['ink-3'], '400', 'right');
          if (i % step === 0) this.text(n.name, 0, Y + 9, C['ink-3']);
        });
      }
    }
    bar(b) {
      const s = this.seen(b); if (!s) return;
      const {g, C, P} = this, c = C.of(b.hue, b.shade), plan = b.planned || b.start >= P.now, X = t => this.x(Math.max(s.a, Math.min(s.b, t)));
      const put = (from, to, style) => { if (to > from) { g.fillStyle = style; g.fillRect(X(from), s.y, X(to) - X(from) + (b.realtime ? .4 : 0), s.h); } };
      const unf = b.unf ?? b.end, prot = Math.min(b.prot ?? (b.realtime ? b.end : b.start), unf);
      if (b.realtime) put(s.a, unf, plan ? c.realPlan : c.real);
      else { put(s.a, prot, plan ? c.mid : c.fill); put(Math.max(s.a, prot), unf, plan ? c.interPlan : c.inter); }
      put(Math.max(s.a, unf), s.b, c.free);
      for (const [p, q] of b.parked) { put(p, q, C.surface); if (s.h >= 4 && X(q) > X(p)) { g.strokeStyle = C.ink; g.lineWidth = 1; g.strokeRect(X(p) + .5, s.y + .5, X(q) - X(p) - 1, s.h - 1); } }
      if (plan && s.h >= 6 && !b.realtime) { g.strokeStyle = c.edge; g.lineWidth = 1; g.strokeRect(s.x + 1, s.y + .5, s.w - 1.5, s.h - 1.5); }
      g.fillStyle = C.surface;
      if (!b.realtime) { if (s.h >= 6) g.fillRect(s.x, s.y + s.h - .75, s.w, .75); g.fillRect(s.x + s.w - .75, s.y, .75, s.h); }
      if (b.preempted && b.end <= this.t1) { g.fillStyle = C.red; g.fillRect(s.x + s.w - 3.5, s.y, 3.5, s.h); }
    }
    label(b) {
      const s = this.seen(b); if (!s || s.h < (this.mode === 'fit' ? 24 : 14) || s.w < 64) return;
      const {g, C} = this; g.font = `400 11px ${FONT}`; const w = g.measureText(b.label).width; if (w + 12 > s.w) return;
      g.fillStyle = C.surface; g.fillRect(s.x + 4, s.y + s.h / 2 - 7, w + 8, 14); this.text(b.label, s.x + 8, s.y + s.h / 2 + 4, C.ink);
    }
    axis() {
      const {g, C, P, W, H} = this, per = (W - this.gutter) / ((this.t1 - this.t0) / MINUTE);
      const every = ([15, 30, 60, 120, 240, 360, 480, 720].find(m => m * per > 62) || 1440) * MINUTE, local = t => t + this.shift;
      const start = Math.ceil(local(this.t0) / every) * every - this.shift, nowX = this.x(P.now);
      let day = null;
      for (let t = start; t < this.t1; t += every) {
        const X = Math.round(this.x(t)) + .5, today = Math.floor(local(t) / 864e5), turn = today !== day;
        g.strokeStyle = C.line; g.lineWidth = 1; g.beginPath(); g.moveTo(X, 20); g.lineTo(X, HEAD + STRIP + 4); g.stroke();
        if (X > W - 34 || (Math.abs(X + 16 - nowX) < 30 && P.now > this.t0)) continue;
        const text = turn ? this.dated(t) : this.clock(t); if (turn && X > W - 62) continue;
        this.text(text, X + 3, 30, turn && day !== null ? C.ink : C['ink-3']); day = today;
      }
      if (nowX > this.gutter + 90 && W > 560) this.text(P.words.past, nowX - 40, 12, C['ink-2'], '400', 'right');
      if (nowX > this.gutter - 40 && nowX < W - 130 && W > 560) this.text(P.words.ahead, nowX + 40, 12, C['ink-2']);
      return H;
    }
    nowLine() {
      const {g, C, P, H} = this; if (P.now < this.t0 || P.now > this.t1) return;
      const X = this.x(P.now), from = Math.floor(P.now / P.step) * P.step, bottom = Math.min(H, this.full - this.scroll);
      g.strokeStyle = C.ink; g.lineWidth = 1; g.setLineDash([3, 3]); g.strokeRect(this.x(from), HEAD, this.x(from + P.step) - this.x(from), bottom - HEAD - 1); g.setLineDash([]);
      g.lineWidth = 2; g.beginPath(); g.moveTo(X, 16); g.lineTo(X, bottom); g.stroke();
      const half = 34, at = Math.max(this.gutter + half, Math.min(this.W - half, X)); this.text(`${P.words.now} ${this.clock(P.now)}`, at, 12, C.ink, '600', 'center');
    }
    // GPUs held in each timestep: funded by program, then unfunded, then down
    held() {
      const {P} = this, n = Math.ceil((P.to - P.from) / P.step), order = P.programs.map(p => p.slug), cols = Array.from({length: n}, () => ({by: order.map(() => 0), free: 0, down: 0}));
      const over = (o, add) => { const a = Math.max(0, Math.floor((o.start - P.from) / P.step)), b = Math.min(n, Math.ceil((o.end - P.from) / P.step)); for (let c = a; c < b; c++) { const m = P.from + (c + .5) * P.step; if (o.start <= m && m < o.end) add(cols[c], m); } };
      for (const b of P.bars) { const i = order.indexOf(b.program); over(b, (c, m) => { if (i < 0 || (b.unf != null && m >= b.unf)) c.free += b.gpus; else c.by[i] += b.gpus; }); }
      for (const d of P.down) over(d, c => { c.down += d.gpus; });
      return cols;
    }
    strip() {
      const {g, C, P} = this, y0 = HEAD + 4, w = this.W - this.gutter - 1; P.words.held.forEach((t, i) => this.text(t, 0, y0 + 10 + 13 * i, C['ink-3']));
      g.fillStyle = C.bg; g.fillRect(this.gutter, y0, w, STRIP);
      this.sums.forEach((col, c) => {
        const a = Math.max(this.t0, P.from + c * P.step), b = Math.min(this.t1, P.from + (c + 1) * P.step); if (b <= a) return;
        const X = this.x(a), width = this.x(b) - X + .3, planned = P.from + (c + .5) * P.step > P.now; let y = y0 + STRIP;
        const put = (n, style) => { const h = n / P.rows * STRIP; y -= h; g.fillStyle = style; g.fillRect(X, y, width, h + .3); };
        col.by.forEach((n, i) => { const k = C.of(P.programs[i].hue, 0); if (n) put(n, planned ? k.mid : k.fill); });
        if (col.free) put(col.free, C['line-2']); if (col.down) { g.fillStyle = C.cross; g.fillRect(X, y0, width, col.down / P.rows * STRIP); }
      });
      g.strokeStyle = C['line-2']; g.lineWidth = 1; g.strokeRect(this.gutter - .5, y0 - .5, w + 1, STRIP + 1);
    }

    // choosing a bar: outline on the upper canvas, facts in the card
    hit(px, py) {
      if (px < this.gutter || py < this.top - 1) return null;
      const t = this.time(px), inside = o => { const Y = this.y(o.first_gpu); return t >= o.start && t < o.end && py >= Y && py < Y + o.gpus * this.row; };
      return this.P.bars.find(inside) || this.P.down.find(inside) || null;
    }
    pick(b, px, py) {
      const {o} = this; o.clearRect(0, 0, this.W, this.H); this.sel = b || null; this.card.hidden = !b; this.el.classList.toggle('hot', Boolean(b?.url));
      if (this.pair) for (const p of plans) if (p !== this && p.P && p.pair === this.pair) p.echo(b);
      const s = b && this.seen(b); if (!s) { this.card.hidden = true; return; }
      this.outline(s);
      this.describe(b); const w = 264, box = this.card;
      const left = px ?? s.x + s.w, top = py ?? s.y + Math.min(8, s.h);
      box.style.left = Math.max(0, left + 14 + w > this.W ? left - w - 14 : left + 14) + 'px';
      box.style.top = Math.max(0, top + 12 + box.offsetHeight > this.H ? top - box.offsetHeight - 12 : top + 12) + 'px';
    }
    outline(s) { const {o, C} = this; for (const [style, width] of [[C.surface, 4], [C.ink, 2]]) { o.strokeStyle = style; o.lineWidth = width; o.strokeRect(s.x, s.y, s.w, s.h); } }
    // the runs of the job that is chosen in the picture beside this one
    echo(b) {
      this.o.clearRect(0, 0, this.W, this.H); if (!b?.budget) return;
      for (const c of this.P.bars) { const s = c.label === b.label && c.budget === b.budget && this.seen(c); if (s) this.outline(s); }
    }
    state(b) {
      const {P} = this, w = P.words;
      if (b.why != null) return b.why; if (b.planned || b.start >= P.now) return w.planned; if (b.end <= P.now) return b.preempted ? w.preempted : w.over;
      if (b.unf != null && b.unf <= P.now) return w.unfunded; if (b.realtime) return w.realtime;
      return b.prot > P.now ? `${w.until} ${this.clock(b.prot)}` : `${w.since} ${this.clock(b.prot ?? b.start)}`;
    }
    place(b) {
      const at = g => this.P.nodes.find(n => g >= n.first_gpu && g < n.first_gpu + n.gpus)?.name ?? '', a = at(b.first_gpu), z = at(b.first_gpu + b.gpus - 1);
      const cut = a.lastIndexOf('-') + 1, last = cut && z.startsWith(a.slice(0, cut)) ? z.slice(cut) : z; // h100-n17 to n20
      return `${b.gpus} ${this.P.words.on} ${a}${a === z ? '' : ` ${this.P.words.to} ${last}`}`;
    }
    when(t) { return this.dayOf(t) === this.dayOf(this.P.now) ? this.clock(t) : this.dated(t); }
    describe(b) {
      const {P} = this, w = P.words, id = b.job == null ? '' : '#' + String(b.job).replace(/\B(?=(\d{3})+$)/g, '\u202f') + (b.run ? `, ${w.run} ${b.run}` : '');
      const rows = [...(b.budget ? [[w.budget, b.budget]] : []), [w.gpus, this.place(b)], [b.start > P.now ? w.starts : w.started, this.when(b.start)], [b.end <= P.now ? w.ended : w.ends, b.end_text || this.when(b.end)], ...(b.tip || [])];
      const head = make('div', 'row1'), name = make('b', 'hd', b.label), list = make('dl', 'kv');
      head.append(name, make('span', 'u s12', id)); list.append(...rows.flatMap(([k, v]) => [make('dt', '', k), make('dd', '', v)]));
      this.card.replaceChildren(head, make('div', 'st', this.state(b)), list, ...(b.url ? [make('div', 'hint', w.hint)] : []));
      this.spoken = [b.label, id, this.state(b), ...rows.map(r => r.join(' '))].join(', ');
    }

    // pointer: hover, click opens, drag zooms in time
    at(e) { const r = this.cv.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; }
    move(e) {
      const [px, py] = this.at(e);
      if (!this.drag || Math.abs(px - this.drag) < 6) { if (e.pointerType !== 'touch') this.pick(this.hit(px, py) || this.pinned, px, py); return; }
      this.pick(null); const {o, C} = this; o.fillStyle = C.ink + '22'; o.strokeStyle = C.ink; o.lineWidth = 1;
      o.fillRect(this.drag, HEAD, px - this.drag, this.H - HEAD); o.strokeRect(this.drag, HEAD, px - this.drag, this.H - HEAD - 1);
    }
    press(e) { if (e.button === 0 && e.pointerType !== 'touch') { this.drag = Math.max(this.gutter, this.at(e)[0]); this.cv.setPointerCapture(e.pointerId); } }
    lift(e) {
      const [px, py] = this.at(e), from = this.drag; this.drag = null;
      if (from != null && Math.abs(px - from) >= 6) { this.zoom(...[from, px].sort((a, b) => a - b).map(v => this.time(Math.max(this.gutter, Math.min(this.W - 1, v))))); return; }
      const b = this.hit(px, py); if (e.pointerType === 'touch' && b && b !== this.sel) { this.pick(b, px, py); return; }
      if (b?.url) location.href = b.url;
    }
    zoom(a = this.P.from, b = this.P.to) {
      const {P} = this; if (b - a < P.step / 2) return; this.t0 = Math.max(P.from, a); this.t1 = Math.min(P.to, b);
      for (const button of document.querySelectorAll('[data-plan-whole]')) button.hidden = this.t0 === P.from && this.t1 === P.to;
      this.layout();
    }
    key(e) {
      const {P} = this, b = this.sel; let n = null;
      const nearest = (list, cost) => list.reduce((best, c) => (best === null || cost(c) < cost(best) ? c : best), null), sameRow = c => c.first_gpu <= (b?.first_gpu ?? 0) && (b?.first_gpu ?? 0) < c.first_gpu + c.gpus;
      if (e.key === 'Enter' && b?.url) { location.href = b.url; return; }
      if (e.key === 'Escape') { if (b) this.pick(null); else this.zoom(); return; }
      if (e.key === '+' || e.key === '-') { const mid = b ? (Math.max(b.start, this.t0) + Math.min(b.end, this.t1)) / 2 : P.now, w = (this.t1 - this.t0) * (e.key === '+' ? .25 : 1); this.zoom(mid - w, mid + w); return; }
      if (!/^Arrow/.test(e.key)) return;
      e.preventDefault(); const mid = b ? Math.max(b.start, Math.min(b.end - 1, P.now)) : P.now, at = c => c.start <= mid && mid < c.end;
      if (!b) n = P.bars.find(at) || P.bars[0];
      else if (e.key === 'ArrowRight') n = nearest(P.bars.filter(c => sameRow(c) && c.start >= b.end), c => c.start);
      else if (e.key === 'ArrowLeft') n = nearest(P.bars.filter(c => sameRow(c) && c.end <= b.start), c => -c.end);
      else if (e.key === 'ArrowDown') n = nearest(P.bars.filter(c => at(c) && c.first_gpu >= b.first_gpu + b.gpus), c => c.first_gpu);
      else n = nearest(P.bars.filter(c => at(c) && c.first_gpu + c.gpus <= b.first_gpu), c => -c.first_gpu);
      if (!n) return;
      const Y = this.y(n.first_gpu); if (Y < this.top || Y + n.gpus * this.row > this.H) { this.box.scrollTop += Y - (this.top + this.H) / 2; this.scroll = this.box.scrollTop; this.draw(); }
      this.pick(n); this.say.textContent = this.spoken;
    }
  }
  const make = (tag, cls = '', text = '') => { const e = document.createElement(tag); if (cls) e.className = cls; if (text) e.textContent = text; return e; };
  const lang = document.documentElement.lang === 'en' ? 'en-GB' : document.documentElement.lang;
  function format(zone = 'UTC', options) { const f = new Intl.DateTimeFormat(lang, {...options, hourCycle: 'h23', timeZone: zone}); return t => f.format(t); }
  function offset(t, zone = 'UTC') {
    const part = Object.fromEntries(new Intl.DateTimeFormat('en-US', {timeZone: zone, hourCycle: 'h23', year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric', second: 'numeric'}).formatToParts(t).map(p => [p.type, Number(p.value)]));
    return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second) - Math.floor(t / 1000) * 1000;
  }

  const plans = [];
  async function ask(plan) {
    const url = plan.el.dataset.src;
    try { const r = await fetch(url, {headers: {Accept: 'application/json'}, cache: 'no-cache'}); if (!r.ok) throw Error(String(r.status)); const text = await r.text(); if (text !== plan.answer) { plan.answer = text; plan.load(JSON.parse(text)); } dispatchEvent(new CustomEvent('liveresult', {detail: true})); }
    catch { dispatchEvent(new CustomEvent('liveresult', {detail: false})); }
  }
  document.fonts.ready.then(() => {
    for (const el of document.querySelectorAll('.plan')) {
      const plan = new Plan(el); plans.push(plan);
      if (el.dataset.plan) plan.load(JSON.parse(document.getElementById(el.dataset.plan).textContent)); else ask(plan);
      el.addEventListener('planask', () => { if (plan.P) { plan.t0 = plan.P.from; plan.t1 = plan.P.to; } ask(plan); }); // data-src was changed
      if (el.dataset.src && el.dataset.every) setInterval(() => { if (!document.hidden) ask(plan); }, el.dataset.every * 1000);
    }
  });
  addEventListener('themechange', () => { for (const p of plans) if (p.P) p.layout(); });
  addEventListener('click', e => {
    const rows = e.target.closest('[data-plan-rows]'), whole = e.target.closest('[data-plan-whole]');
    for (const p of plans) { if (rows) { p.mode = rows.dataset.planRows; p.layout(); } if (whole) p.zoom(); }
  });
})();
