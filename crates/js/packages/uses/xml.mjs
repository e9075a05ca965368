import xml2js from 'xml2js';
import { create } from 'xmlbuilder2';
import { parse as h5 } from 'parse5';
import { parseDocument, DomUtils } from 'htmlparser2';
import { Feed } from 'feed';
import { SitemapStream, streamToPromise } from 'sitemap';
import Parser from 'rss-parser';
export default async () => {
  const p = await xml2js.parseStringPromise('<a x="1"><b>2</b><b>3</b></a>');
  const f = new Feed({ title: 't', id: 'i', link: 'http://a', copyright: 'c', updated: new Date(0) });
  f.addItem({ title: 'x', link: 'http://b', date: new Date(0) });
  const sm = new SitemapStream({ hostname: 'http://a.test' });
  sm.write({ url: '/x', changefreq: 'daily', priority: 0.3 });
  sm.end();
  const feed = await new Parser().parseString(f.rss2());
  return [
    p,
    new xml2js.Builder({ headless: true }).buildObject({ a: { $: { x: 1 }, b: [1, 2] } }),
    create({ r: { '@a': 'b', c: ['1', '2'] } }).end(),
    h5('<p>x').childNodes.length,
    DomUtils.textContent(parseDocument('<p>x<b>y')),
    f.atom1(),
    (await streamToPromise(sm)).toString(),
    feed.items[0].title,
    feed.items[0].isoDate,
  ];
};
