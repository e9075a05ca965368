import { parse } from 'node-html-parser';
import sanitize from 'sanitize-html';
export default async () => {
  const d = parse('<div id=a class="x y"><p>Hi <b>there</b></p><img src=x></div>');
  d.querySelector('b').set_content('you');
  return [
    d.querySelector('#a').classNames,
    d.querySelectorAll('p').length,
    d.toString(),
    d.text,
    sanitize('<a href="javascript:x" onclick=y>t</a><script>bad()</script><b>ok</b>'),
    sanitize('<p style="color:red">x</p>', {
      allowedTags: ['p'],
      allowedAttributes: { p: ['style'] },
      allowedStyles: { p: { color: [/^red$/] } },
    }),
  ];
};
