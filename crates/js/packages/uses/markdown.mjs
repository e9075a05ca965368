import MarkdownIt from 'markdown-it';
import { remark } from 'remark';
import html from 'remark-html';
import gfm from 'remark-gfm';
import he from 'he';
import slugify from 'slugify';
import { convert } from 'html-to-text';
import { Liquid } from 'liquidjs';
import pug from 'pug';
import { Eta } from 'eta';
export default async () => [
  new MarkdownIt({ html: true, linkify: true, typographer: true }).render(
    '# Hi "q"\n\n- a\n- **b** http://a.test\n\n|a|b|\n|-|-|\n|1|2|',
  ),
  String(await remark().use(gfm).use(html).process('# Hi\n\n~~x~~\n\n- [x] t\n\n| a |\n|---|\n| 1 |')),
  he.encode('é<>&"', { useNamedReferences: true }),
  he.decode('&eacute;&#x41;'),
  slugify('Hällo Wörld!', { lower: true }),
  convert(
    '<h1>T</h1><p>a <a href="http://x.y">b</a></p><ul><li>1</li></ul><table><tr><td>c</td></tr></table>',
    { wordwrap: 40 },
  ),
  await new Liquid().parseAndRender(
    '{% for i in l %}{{ i | upcase }}{% endfor %}{{ "2020-01-02" | date: "%Y/%m" }}',
    { l: ['a', 'b'] },
  ),
  pug.render('ul\n  each v in l\n    li(class=v)= v', { l: ['a', 'b'] }),
  new Eta().renderString('<% it.l.forEach(x => { %><%= x %>,<% }) %>', { l: [1, 2] }),
];
