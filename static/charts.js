// ECharts set-ups. Colours come from the tokens and follow the theme; tooltips use classes, no inline style.
//
// <div class="al-chart h380" data-chart="NAME" data-json="ID of a JSON block" or data-src="URL", or data-values="JSON" in what htmx fetches, role="img" aria-label="…">
// All instants are ISO 8601 with Z; amounts are integer milli-GPU-seconds and are shown as credits; `zone` is an
// IANA name (the accounting zone, default UTC); `hue` is 1…12, or 0.
//
// burndown  {hue, zone, from, to, now, left_mgpus: [[at, n]], plan_mgpus: [[at, n]],
//            settled_mgpus?: [[at, n]]     drawn thin: what was left of closed timesteps alone
//            forecast_mgpus?: [[at, low, likely, high]], marks?: [{at, label, draft?}],
//            runs_out?: {at, label: [line, …]}}
// demand    {zone, from, to, now, step_minutes, traffic_step_minutes, per_gpu (a second, or null), traffic: [[at, rate]],
//            told: [[at, GPUs]], ahead: [[at, GPUs]], held: [[at, GPUs]]}      steps; GPUs on the left, traffic on the right
// asked     {hue, points_s: [[used, asked]], times_per_mille}       seconds; the dashed line is the median job
// calibration {said: [percent], series: [{name, true_per_mille: [n]}], words: {said, true}}
// levels    {hue, zone, from, to, lines: [{name, own, points: [[at, level or null]]}], lost: [{at, level, label, url}]}
// bars      {hue, zone, days: [at], values_mgpus: [n], name}         one bar a day, hollow (parked)
(() => {
  const CREDIT = 3600000, DAY = 864e5, page = document.documentElement.lang || 'en', lang = page === 'en' ? 'en-GB' : page; // day before month
  const words = JSON.parse(document.getElementById('chart-words')?.textContent || '{}'), said = word => words[word] || word;
  const css = name => getComputedStyle(document.documentElement).getPropertyValue('--al-' + name).trim();
  const hueOf = n => css('h' + n) || css('ink-3');
  const number = (v, digits = 0) => v.toLocaleString(lang, {minimumFractionDigits: digits, maximumFractionDigits: digits}).replace('-', '−');
  const credits = n => n / CREDIT, amount = v => number(v, Math.abs(v) < 10 ? 1 : 0) + ' cr';
  const short = v => (v >= 1000 ? number(v / 1000, v % 1000 ? 1 : 0) + ' k' : number(v));
  const escape = text => String(text).replace(/[&<>"]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'})[c]);
  const tip = (head, rows) => `<div class="tip"><b>${escape(head)}</b>${rows.map(([a, b]) => `<div class="r"><span>${escape(a)}</span><span>${escape(b)}</span></div>`).join('')}</div>`;

  // ECharts puts its ticks by UTC; instants are moved so that UTC reads as the accounting zone does
  function clock(zone = 'UTC') {
    const parts = new Intl.DateTimeFormat('en-US', {timeZone: zone, hourCycle: 'h23', year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric', second: 'numeric'});
    return iso => { const p = Object.fromEntries(parts.formatToParts(Date.parse(iso)).map(x => [x.type, Number(x.value)])); return Date.UTC(p.year, p.month - 1, p.day, p.hour, p.minute, p.second); };
  }
  const shown = options => { const f = new Intl.DateTimeFormat(lang, {...options, timeZone: 'UTC', hourCycle: 'h23'}); return t => f.format(t); };
  const day = shown({day: 'numeric', month: 'short'}), moment = shown({weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit'});

  const base = () => ({
    useUTC: true, animation: false, aria: {enabled: false}, textStyle: {fontFamily: 'Inter, system-ui, sans-serif', fontSize: 12, color: css('ink-2')},
    grid: {left: 0, right: 16, top: 24, bottom: 0, outerBoundsMode: 'same', outerBoundsContain: 'axisLabel'},
    tooltip: {trigger: 'axis', confine: true, backgroundColor: css('surface'), borderColor: css('line-2'), borderWidth: 1, padding: [6, 10], textStyle: {color: css('ink'), fontSize: 12}, axisPointer: {lineStyle: {color: css('ctl'), type: 'solid'}}}});
  const axis = ({axisLabel, ...more} = {}) => ({axisLine: {lineStyle: {color: css('line-2')}}, axisTick: {show: false}, axisLabel: {color: css('ink-3'), fontSize: 12, ...axisLabel}, splitLine: {lineStyle: {color: css('line')}}, ...more});
  const line = (name, data, style, more = {}) => ({name, type: 'line', data, symbol: 'none', lineStyle: style, ...more});
  const hidden = {opacity: 0};

  // the value of a step-less series at an instant, between its points; null outside
  function between(points, t, i = 1) {
    const n = points.findIndex(p => p[0] >= t); if (n < 0 || (n === 0 && points[0][0] > t)) return null;
    if (n === 0 || points[n][0] === t) return points[n][i];
    const [a, b] = [points[n - 1], points[n]]; return a[i] + (b[i] - a[i]) * (t - a[0]) / (b[0] - a[0]);
  }

  // the first row in which each span meets no other that was put there before
  function rowsOf(spans) {
    const rows = [];
    return spans.map(([low, high]) => {
      let n = rows.findIndex(row => row.every(([a, b]) => high < a || b < low)); if (n < 0) n = rows.push([]) - 1;
      rows[n].push([low, high]); return n;
    });
  }
  // where an axis of time has its words: both ends, and midnights (or firsts of months) that are clear of them
  const clear = (from, to, found, gap) => [from, ...found.filter(t => t - from > gap * .6 && to - t > gap * .6), to];
  function steps(from, to, gap) { const first = Math.floor(from / Math.min(DAY, gap)) * Math.min(DAY, gap), found = []; for (let t = first + gap; t < to; t += gap) found.push(t); return clear(from, to, found, gap); }
  function months(from, to) { const d = new Date(from), found = []; for (let n = 1, t; (t = Date.UTC(d.getUTCFullYear(), d.getUTCMonth() + n, 1)) < to; n++) found.push(t); return clear(from, to, found, 14 * DAY); }

  const CHARTS = {
    // what is left of a grant: left, plan, forecast band, marks of change sets, the day it runs out
    burndown(d, width) {
      const at = clock(d.zone), series = s => (s || []).map(([t, ...v]) => [at(t), ...v.map(credits)]);
      const left = series(d.left_mgpus), plan = series(d.plan_mgpus), settled = series(d.settled_mgpus), fan = series(d.forecast_mgpus);
      const hue = hueOf(d.hue), now = at(d.now), from = at(d.from), to = at(d.to), o = base(), out = d.runs_out && {...d.runs_out, at: at(d.runs_out.at)};
      for (const one of document.querySelectorAll('[data-of-forecast]')) one.hidden = !fan.length; // the legend names what is drawn
      const top = Math.max(1e-9, ...[left, plan, fan].flatMap(s => s.map(p => Math.max(...p.slice(1))))), floor = Math.min(0, ...left.map(p => p[1]));
      const rows = t => {
        const l = t <= now ? between(left, t) : null, p = between(plan, t), lo = t > now ? between(fan, t, 1) : null, out = [];
        if (l !== null) out.push([said('left'), amount(l)]);
        if (lo !== null) out.push([said('forecast'), `${number(Math.max(0, lo))} – ${amount(Math.max(0, between(fan, t, 3)))}`]);
        if (p !== null) out.push([said('plan'), amount(p)]); if (l !== null && p !== null) out.push([said('against plan'), (l - p >= 0 ? '+' : '') + amount(l - p)]); return out;
      };
      // a mark before now has its words on its left, a later one on its right, but for the edges of the picture; where words would meet, in another row
      const part = t => (t - from) / (to - from), side = (t, left) => (part(t) < .2 ? 'left' : part(t) > .8 || left ? 'right' : 'left');
      const later = (d.marks || []).some(m => at(m.at) > now), words = [{at: now, text: said('now'), align: side(now, later), now: true}, ...(d.marks || []).map(m => ({at: at(m.at), text: m.label, align: side(at(m.at), at(m.at) < now), draft: m.draft}))];
      const rows_used = rowsOf(words.map(w => { const x = part(w.at) * (width - 56), long = w.text.length * 6.6 + 10; return w.align === 'left' ? [x, x + long] : [x - long, x]; }));
      const label = n => ({position: 'end', color: css('ink-2'), fontSize: 12, distance: 4 + 16 * rows_used[n]});
      const marks = words.map((w, n) => ({xAxis: w.at, lineStyle: w.now ? {color: css('ink'), width: 1.5} : {type: w.draft ? [3, 3] : 'solid'}, label: {...label(n), formatter: w.text, align: w.align, ...(w.now && {fontWeight: 600, color: css('ink')})}}));
      const end = out ? {markPoint: {symbol: 'circle', symbolSize: 9, silent: true, label: {show: false}, itemStyle: {color: css('surface'), borderColor: css('red'), borderWidth: 2}, data: [{coord: [out.at, 0]}]},
        markLine: {symbol: 'none', silent: true, lineStyle: {color: css('red'), width: 1, type: 'solid'}, data: [[{coord: [out.at, 0]}, {coord: [out.at, top * .47]}]],
          label: {position: 'end', formatter: [out.label].flat().join('\n'), color: css('red-ink'), fontWeight: 500, fontSize: 12, lineHeight: 16, align: part(out.at) > .85 ? 'right' : 'left'}}} : {};
      const days = (to - from) / DAY, gap = (days > 40 ? 14 : days > 14 ? 7 : days > 3 ? 1 : .25) * DAY, ticks = days > 60 ? months(from, to) : steps(from, to, gap);
      return {...o, grid: {...o.grid, top: 24 + 16 * Math.max(...rows_used)}, tooltip: {...o.tooltip, formatter: p => tip((days > 14 ? day : moment)(p[0].axisValue), rows(p[0].axisValue))},
        xAxis: axis({type: 'time', min: from, max: to, splitLine: {show: false}, axisLabel: {customValues: ticks, formatter: days > 1 ? day : moment, showMinLabel: true, showMaxLabel: true, alignMinLabel: 'left', alignMaxLabel: 'right', hideOverlap: true}}),
        yAxis: axis({type: 'value', min: floor || 0, splitNumber: 5, axisLine: {show: false}, axisLabel: {formatter: short}}),
        series: [
          line('plan', plan, {color: css('ink-3'), width: 1.5, type: [5, 4]}, {z: 2, markLine: {symbol: 'none', silent: true, lineStyle: {color: css('ctl'), type: 'solid', width: 1}, data: marks}}),
          line('low', fan.map(p => [p[0], p[1]]), hidden, {stack: 'fan', areaStyle: hidden}),
          line('band', fan.map(p => [p[0], p[3] - p[1]]), hidden, {stack: 'fan', areaStyle: {color: hue, opacity: .22}}),
          line('likely', fan.map(p => [p[0], p[2]]), {color: hue, width: 1.5, type: [2, 3]}, {z: 3, ...end}),
          line('settled', settled, {color: hue, width: 1, opacity: .6}, {z: 3}),
          line('left', left, {color: hue, width: 2.5}, {z: 4})]};
    },
    // a service: traffic as a line, GPUs as steps. The right axis is the left one × what a GPU does, so that the line shows the need
    demand(d) {
      const at = clock(d.zone), o = base(), now = at(d.now), step = d.step_minutes * 6e4, tstep = (d.traffic_step_minutes || 60) * 6e4, name = {traffic: said('traffic'), told: said('forecast'), held: said('held'), ...d.words};
      const gapped = (rows, length) => rows.flatMap(([t, v], n) => { const a = at(t), next = rows[n + 1] && at(rows[n + 1][0]); return next && next - a > 1.5 * length ? [[a, v], [a + length, v], [a + length, null]] : [[a, v]]; });
      const ended = (rows, length) => (rows.length ? [...rows, [rows.at(-1)[0] + length, rows.at(-1)[1]]] : rows);
      const traffic = ended(gapped(d.traffic, tstep), tstep), told = ended(gapped(d.told, step), step), ahead = ended(d.ahead.map(([t, v]) => [at(t), v]), step), held = d.held.map(([t, v]) => [at(t), v]);
      const peak = Math.max(1, ...[told, ahead, held].flatMap(s => s.map(p => p[1] || 0))), most = Math.max(0, ...traffic.map(p => p[1] || 0));
      const gpus = Math.ceil(Math.max(peak, d.per_gpu ? most / d.per_gpu : 0) * 1.1), right = d.per_gpu ? gpus * d.per_gpu : Math.max(most * 1.1, 1e-6);
      const value = (rows, t) => { let v = null; for (const [a, x] of rows) { if (a > t) break; v = x; } return v; }, rate = v => number(v, v && v < 10 ? 2 : 0);
      const rows = t => { const f = t < now ? value(told, t) : value(ahead, t), v = t < now ? value(traffic, t) : null, h = t <= now ? value(held, t) : null, out = [];
        if (v !== null) out.push([name.traffic, rate(v) + '/s' + (d.per_gpu ? ` (${Math.ceil(v / d.per_gpu - 1e-9)} GPUs)` : '')]); if (f !== null) out.push([name.told, number(f) + ' GPUs']); if (h !== null) out.push([name.held, number(h) + ' GPUs']); return out; };
      return {...o, legend: {top: 0, left: 0, itemWidth: 18, itemHeight: 8, textStyle: {color: css('ink-2'), fontSize: 12}, data: [name.traffic, name.told, name.held]}, grid: {...o.grid, top: 44},
        tooltip: {...o.tooltip, formatter: p => tip(moment(p[0].axisValue), rows(p[0].axisValue))},
        xAxis: axis({type: 'time', min: at(d.from), max: at(d.to), splitLine: {show: false}, minInterval: DAY, maxInterval: DAY, axisLabel: {formatter: day, showMinLabel: true, showMaxLabel: false, alignMinLabel: 'left', hideOverlap: true}}),
        yAxis: [axis({type: 'value', name: 'GPUs', nameTextStyle: {color: css('ink-3'), align: 'left'}, nameGap: 8, min: 0, max: gpus, axisLine: {show: false}, axisLabel: {formatter: short, showMaxLabel: false}}), axis({type: 'value', name: said('a second'), nameTextStyle: {color: css('ink-3'), align: 'right'}, nameGap: 8, min: 0, max: right, axisLine: {show: false}, splitLine: {show: false}, axisLabel: {formatter: short, showMaxLabel: false}})],
        series: [
          line(name.held, held, {color: css('ink-3'), width: 1}, {step: 'end', z: 2, itemStyle: {color: css('ink-3')}, areaStyle: {color: css('ink-3'), opacity: .14}}),
          line(name.traffic, traffic, {color: css('ink'), width: 1.25}, {yAxisIndex: 1, z: 3, step: 'end', itemStyle: {color: css('ink')}, connectNulls: false}),
          line(name.told, told, {color: css('h1'), width: 2}, {step: 'end', z: 4, itemStyle: {color: css('h1')}, connectNulls: false, markLine: {symbol: 'none', silent: true, label: {formatter: said('now'), position: 'end', color: css('ink'), fontWeight: 600, fontSize: 12, distance: 4}, lineStyle: {color: css('ink'), width: 1.5, type: 'solid'}, data: [{xAxis: now}]}}),
          line(name.told, ahead, {color: css('h1'), width: 2, type: [4, 3]}, {step: 'end', z: 4, itemStyle: {color: css('h1')}})]};
    },
    // said percentile against the share of truths that came true by it; the diagonal is what it should be
    calibration(d) {
      const o = base(), true_of = s => d.said.map((p, n) => [p, s.true_per_mille[n] / 10]), percent = v => number(v, v % 1 ? 1 : 0) + ' %';
      const dashes = ['solid', [6, 4], [2, 3]], marks = ['circle', 'rect', 'triangle'];
      const side = {min: 0, max: 100, interval: 10, axisLabel: {formatter: v => (v % 50 === 0 || v % 40 === 10 ? v + ' %' : '')}};
      return {...o, legend: {top: 0, left: 0, itemWidth: 24, itemHeight: 8, textStyle: {color: css('ink-2'), fontSize: 12}, data: d.series.map(s => s.name)}, grid: {...o.grid, top: 36, right: 24},
        tooltip: {...o.tooltip, trigger: 'item', formatter: p => tip(p.seriesName, [[d.words.said, percent(p.value[0])], [d.words.true, percent(p.value[1])]])},
        xAxis: axis({type: 'value', ...side, axisLabel: {formatter: v => (v ? side.axisLabel.formatter(v) : '')}}), yAxis: axis({type: 'value', ...side}),
        series: [
          line('', [[0, 0], [100, 100]], {color: css('ctl'), width: 1, type: [4, 4]}, {z: 1, silent: true, tooltip: {show: false}}),
          ...d.series.map((s, n) => line(s.name, true_of(s), {color: css('ink'), width: 1.5, type: dashes[n % 3]}, {z: 3, symbol: marks[n % 3], symbolSize: 8, itemStyle: {color: css('ink')}}))]};
    },
    // level fair shares of siblings, on a scale of halves and doubles; red where a run made room for another, which leads to its job
    levels(d) {
      const at = clock(d.zone), o = base(), from = at(d.from), to = at(d.to), most = 8, level = v => (v === null ? null : Math.min(most, Math.max(1 / most, v)));
      const all = d.lines.flatMap(l => l.points.map(p => level(p[1]))).filter(v => v !== null), edge = (by, v) => 2 ** by(Math.log2(v));
      const low = Math.min(.5, edge(Math.floor, Math.min(1, ...all))), high = Math.max(2, edge(Math.ceil, Math.max(1, ...all))), days = (to - from) / DAY;
      const known = d.lines.map(l => ({...l, points: l.points.map(([t, v]) => [at(t), level(v), v])})), at_ = t => known.map(l => [l.name, l.points.findLast(p => p[0] <= t)?.[2]]).filter(([, v]) => v !== undefined && v !== null);
      const lost = {name: 'lost', type: 'scatter', symbol: 'rect', symbolSize: [3, 16], z: 6, itemStyle: {color: css('red')}, data: d.lost.map(l => ({value: [at(l.at), level(l.level)], name: l.label, url: l.url}))};
      return {...o, grid: {...o.grid, right: 96, top: 12}, tooltip: {...o.tooltip, formatter: p => { const run = p.find(one => one.seriesName === 'lost'); return tip(moment(p[0].axisValue), [...at_(p[0].axisValue).map(([n, v]) => [n, number(v, 2)]), ...(run ? [[said('lost'), run.name]] : [])]); }},
        xAxis: axis({type: 'time', min: from, max: to, splitLine: {show: false}, axisLabel: {customValues: steps(from, to, (days > 7 ? 2 : days > 2 ? 1 : .25) * DAY), formatter: days > 2 ? day : moment, showMinLabel: true, alignMinLabel: 'left', hideOverlap: true}}),
        yAxis: axis({type: 'log', logBase: 2, min: low, max: high, axisLine: {show: false}, axisLabel: {formatter: v => (v >= 1 ? number(v) : '1/' + number(1 / v))}}),
        series: [...known.map((l, n) => line(l.name, l.points.map(p => [p[0], p[1]]), {color: l.own ? hueOf(d.hue) : css('grey'), width: l.own ? 2.5 : 1.25}, {z: l.own ? 4 : 3, connectNulls: false, labelLayout: {moveOverlap: 'shiftY'},
            endLabel: {show: true, color: css(l.own ? 'ink' : 'ink-2'), fontWeight: l.own ? 600 : 400, fontSize: 12, formatter: () => { const v = l.points.at(-1)[2]; return l.name + (v === null ? '' : ' ' + number(v, 2)); }},
            ...(n ? {} : {markLine: {symbol: 'none', silent: true, lineStyle: {color: css('ctl'), type: 'solid', width: 1}, label: {position: 'insideEndBottom', formatter: said('exactly its share'), color: css('ink-3'), fontSize: 12}, data: [{yAxis: 1}]}})})), lost]};
    },
    // what jobs declared against what they took, in hours; above the line more was asked than used
    asked(d) {
      const o = base(), hours = s => s / 3600, points = d.points_s.map(([used, asked]) => [hours(used), hours(asked)]), all = points.flat();
      const low = 2 ** Math.floor(Math.log2(Math.min(...all))), high = 2 ** Math.ceil(Math.log2(Math.max(...all, low * 2))), times = d.times_per_mille / 1000;
      const scale = name => axis({type: 'log', logBase: 2, min: low, max: high, name, nameLocation: 'middle', nameGap: name ? 26 : 0, nameTextStyle: {color: css('ink-3'), fontSize: 12}, axisLabel: {formatter: v => (v >= 1 ? number(v) : '1/' + number(1 / v)), hideOverlap: true}});
      const along = (by, type) => ({type: 'line', symbol: 'none', silent: true, clip: true, data: [[low, low * by], [high, high * by]], lineStyle: {color: css(type === 'solid' ? 'ctl' : 'ink'), width: type === 'solid' ? 1 : 1.5, type}});
      return {...o, grid: {...o.grid, top: 8, bottom: 24}, tooltip: {...o.tooltip, trigger: 'item', formatter: p => tip('', [[said('used'), number(p.value[0], 1) + ' h'], [said('asked'), number(p.value[1], 1) + ' h']])},
        xAxis: scale(said('used, h; asked upwards')), yAxis: scale(''),
        series: [along(1, 'solid'), along(times, [5, 4]), {type: 'scatter', data: points, symbolSize: 6, itemStyle: {color: hueOf(d.hue), opacity: .75}}]};
    },
    // credits a day, hollow as parked is everywhere
    bars(d) {
      const at = clock(d.zone), o = base(), values = d.values_mgpus.map(credits);
      return {...o, grid: {...o.grid, top: 8}, tooltip: {...o.tooltip, axisPointer: {type: 'shadow', shadowStyle: {color: css('sunken'), opacity: .6}}, formatter: p => tip(p[0].name, [[d.name, amount(p[0].value)]])},
        xAxis: axis({type: 'category', data: d.days.map(t => day(at(t))), axisLabel: {hideOverlap: true}}), yAxis: axis({type: 'value', splitNumber: 3, axisLine: {show: false}, axisLabel: {formatter: short}}),
        series: [{type: 'bar', data: values, barCategoryGap: '25%', itemStyle: {color: css('surface'), borderColor: hueOf(d.hue), borderWidth: 1.5}}]};
    }};

  const charts = new Map();
  async function read(el) {
    if (el.dataset.values) return JSON.parse(el.dataset.values);
    if (el.dataset.json) return JSON.parse(document.getElementById(el.dataset.json).textContent);
    const answer = await fetch(el.dataset.src, {headers: {Accept: 'application/json'}}); if (!answer.ok) throw Error(String(answer.status)); return answer.json();
  }
  async function show(el) {
    try { const data = await read(el), chart = echarts.init(el, null, {renderer: 'canvas'}); charts.set(el, {chart, data}); paint(el); chart.on('click', p => { if (p.data?.url) location.assign(p.data.url); }); }
    catch { el.replaceChildren(Object.assign(document.createElement('p'), {className: 'note', textContent: el.dataset.failed || 'The figures did not arrive. Reload the page to try again.'})); }
  }
  function paint(el) { const {chart, data} = charts.get(el); chart.setOption(CHARTS[el.dataset.chart](data, el.clientWidth), true); }
  function sweep() { for (const [el, {chart}] of charts) if (!el.isConnected) { chart.dispose(); charts.delete(el); } }
  function start() { sweep(); for (const el of document.querySelectorAll('[data-chart]')) if (!charts.has(el)) show(el); }
  document.fonts.ready.then(start);
  addEventListener('htmx:afterSettle', start);
  addEventListener('themechange', () => { for (const el of charts.keys()) paint(el); });
  addEventListener('resize', () => { for (const [el, {chart}] of charts) { chart.resize(); paint(el); } });
})();
