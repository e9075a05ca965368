import { JSDOM } from 'jsdom';
export default async () => {
  const { window } = new JSDOM('<p class="x">hi</p>');
  return window.document.querySelector('.x').textContent;
};
