import _ from 'lodash';
import dayjs from 'dayjs';
import { DateTime } from 'luxon';
import { v5 as uuid } from 'uuid';
import { customAlphabet } from 'nanoid';
import YAML from 'yaml';
import * as jsyaml from 'js-yaml';
import semver from 'semver';
import minimist from 'minimist';
import ms from 'ms';
import qs from 'qs';
import * as dates from 'date-fns';
import mime from 'mime-types';
export default async () => [
  _.groupBy([1, 2, 3], (each) => each % 2), _.kebabCase('fooBar'), _.template('a <%= b %>')({ b: 1 }),
  dayjs('2024-02-29').add(1, 'year').format('YYYY-MM-DD'), DateTime.fromISO('2024-01-31T10:00:00Z', { zone: 'utc' }).plus({ months: 1 }).toISO(),
  uuid('x', '6ba7b810-9dad-11d1-80b4-00c04fd430c8'), customAlphabet('a', 5)(), YAML.parse('a: [1, b]\nc: {d: e}'), YAML.stringify({ a: ['x', 1] }), jsyaml.load('- 1\n- x: y'),
  semver.satisfies('1.2.3', '^1.0.0'), semver.sort(['2.0.0', '1.0.0-a']), minimist(['--a', '1', '-b', 'c']), ms('2 days'), qs.parse('a[b]=1&a[c]=2'), qs.stringify({ a: [1, 2] }),
  dates.formatISO(dates.addDays(Date.UTC(2024, 0, 31), 1), { representation: 'date' }), mime.lookup('a.json'),
];
