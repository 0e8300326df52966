// What the choice between two versions of the same shares comes to. Integer thousandths of a percent; the server has the last word.
//
// form[data-conflict] with, in each tr[data-row], input[type=radio][data-value] ("" is: as overall) and td[data-result];
//   tr[data-row=overall] count in [data-result-sum] and [data-result-rest]; [data-over] is shown over 100 %.
(() => {
  const WHOLE = 100000, form = document.querySelector('form[data-conflict]'); if (!form) return;
  const lang = document.documentElement.lang || 'en';
  const show = m => (m / 1000).toLocaleString(lang, {minimumFractionDigits: 3, maximumFractionDigits: 3, useGrouping: false}).replace('-', '−');
  function result() {
    let sum = 0;
    for (const row of form.querySelectorAll('tr[data-row]')) {
      const value = row.querySelector('input:checked').dataset.value;
      row.querySelector('[data-result]').textContent = value === '' ? '–' : show(Number(value));
      if (row.dataset.row === 'overall') sum += Number(value);
    }
    const total = form.querySelector('[data-result-sum]');
    total.textContent = show(sum); total.classList.toggle('bad', sum > WHOLE);
    form.querySelector('[data-result-rest]').textContent = show(WHOLE - sum);
    form.querySelector('[data-over]').hidden = sum <= WHOLE;
  }
  form.addEventListener('change', result); result();  // a browser keeps what was ticked over a reload
})();
