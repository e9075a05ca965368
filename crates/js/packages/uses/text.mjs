import { marked } from 'marked';
import Handlebars from 'handlebars';
import Mustache from 'mustache';
import ejs from 'ejs';
import Papa from 'papaparse';
import { parse } from 'csv-parse/sync';
import { XMLParser } from 'fast-xml-parser';
import TurndownService from 'turndown';
import { diffLines } from 'diff';
import iconv from 'iconv-lite';
import { parseHTML } from 'linkedom';
import chalk from 'chalk';
import * as cookie from 'cookie';
export default async () => [
  marked('# Hi\n\n- a\n- **b**'), Handlebars.compile('{{#each l}}{{this}},{{/each}}')({ l: [1, 2] }), Mustache.render('{{a}}', { a: '<' }), ejs.render('<%= a %>', { a: 1 }),
  Papa.parse('a,b\n1,"x,y"', { header: true }).data, parse('a,b\n1,2', { columns: true }), new XMLParser({ ignoreAttributes: false }).parse('<a x="1"><b>2</b></a>'),
  new TurndownService().turndown('<h1>Hi</h1><p><b>x</b></p>'), diffLines('a\nb\n', 'a\nc\n').map(({ value, added }) => [value, !!added]), iconv.decode(iconv.encode('äö', 'win1252'), 'win1252'), iconv.encode('日本', 'shift_jis').toString('hex'),
  parseHTML('<p class=x>hi</p>').document.querySelector('.x').textContent, chalk.level, cookie.serialize?.('a', 'b') ?? null,
];
