import { Window } from 'happy-dom';
export default async () => {
  const w = new Window({ url: 'http://a.test/x' });
  const d = w.document;
  d.body.innerHTML = '<ul><li class="a">1</li><li>2</li></ul>';
  const out = [];
  d.querySelector('.a').addEventListener('click', () => out.push('click'));
  d.querySelector('.a').click();
  const r = [
    d.querySelectorAll('li').length,
    d.querySelector('li:last-child').textContent,
    d.body.innerHTML,
    out,
    w.location.pathname,
  ];
  await w.happyDOM.close();
  return r;
};
