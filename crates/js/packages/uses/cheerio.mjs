import * as cheerio from 'cheerio';
export default async () => {
  const $ = cheerio.load('<ul><li class="a">One</li><li>Two</li></ul>');
  $('li').last().addClass('b');
  return [$('.a').text(), $('li').length, $.html('ul')];
};
