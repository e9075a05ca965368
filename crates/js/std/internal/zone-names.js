// The English names of time zones, by their abbreviations.

const NAMES = {
  UTC: 'Coordinated Universal Time',
  GMT: 'Greenwich Mean Time',
  BST: 'British Summer Time',
  WET: 'Western European Standard Time',
  WEST: 'Western European Summer Time',
  CET: 'Central European Standard Time',
  CEST: 'Central European Summer Time',
  EET: 'Eastern European Standard Time',
  EEST: 'Eastern European Summer Time',
  MSK: 'Moscow Standard Time',
  MSD: 'Moscow Summer Time',
  EST: 'Eastern Standard Time',
  EDT: 'Eastern Daylight Time',
  CST: 'Central Standard Time',
  CDT: 'Central Daylight Time',
  MST: 'Mountain Standard Time',
  MDT: 'Mountain Daylight Time',
  PST: 'Pacific Standard Time',
  PDT: 'Pacific Daylight Time',
  AKST: 'Alaska Standard Time',
  AKDT: 'Alaska Daylight Time',
  HST: 'Hawaii-Aleutian Standard Time',
  AEST: 'Australian Eastern Standard Time',
  AEDT: 'Australian Eastern Daylight Time',
  ACST: 'Australian Central Standard Time',
  ACDT: 'Australian Central Daylight Time',
  AWST: 'Australian Western Standard Time',
  NZST: 'New Zealand Standard Time',
  NZDT: 'New Zealand Daylight Time',
  JST: 'Japan Standard Time',
  HKT: 'Hong Kong Standard Time',
};

/** Zones without an abbreviation, or with one that others have too. */
const ZONES = {
  'America/Sao_Paulo': 'Brasilia Standard Time',
  'Asia/Calcutta': 'India Standard Time',
  'Asia/Dubai': 'Gulf Standard Time',
  'Asia/Kolkata': 'India Standard Time',
  'Asia/Seoul': 'Korean Standard Time',
  'Asia/Shanghai': 'China Standard Time',
  'Asia/Singapore': 'Singapore Standard Time',
  'Asia/Tehran': 'Iran Standard Time',
};

const two = (number) => String(number).padStart(2, '0');

/** Zones whose abbreviations stand for something else in America. */
const OTHERS = /^(?:Asia\/|America\/Havana$)/;

/** The long name of a zone at a time with this abbreviation and offset in minutes. */
export function longName(zone, abbreviation, minutes) {
  const isOther = OTHERS.test(zone) && /^[CP][SD]T$/.test(abbreviation);
  const name = ZONES[zone] ?? (isOther ? undefined : NAMES[abbreviation]);
  if (name) return name;
  const offset = Math.abs(minutes);
  return `GMT${minutes < 0 ? '-' : '+'}${two(Math.floor(offset / 60))}:${two(offset % 60)}`;
}
