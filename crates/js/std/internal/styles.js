// The codes of terminals for the styles of `util.inspect` and `util.styleText`.

export const styles = {
  special: [36, 39],
  number: [33, 39],
  bigint: [33, 39],
  boolean: [33, 39],
  undefined: [90, 39],
  null: [1, 22],
  string: [32, 39],
  symbol: [32, 39],
  date: [35, 39],
  regexp: [31, 39],
  name: [0, 0],
};

const names = ['Black', 'Red', 'Green', 'Yellow', 'Blue', 'Magenta', 'Cyan', 'White'];
const row = (first, last, named) =>
  Object.fromEntries(names.map((name, at) => [named(name, at), [first + at, last]]));

export const colors = {
  reset: [0, 0],
  bold: [1, 22],
  dim: [2, 22],
  italic: [3, 23],
  underline: [4, 24],
  blink: [5, 25],
  inverse: [7, 27],
  hidden: [8, 28],
  strikethrough: [9, 29],
  doubleunderline: [21, 24],
  ...row(30, 39, (name) => name.toLowerCase()),
  ...row(40, 49, (name) => `bg${name}`),
  framed: [51, 54],
  overlined: [53, 55],
  ...row(90, 39, (name, at) => (at === 0 ? 'gray' : `${name.toLowerCase()}Bright`)),
  ...row(100, 49, (name, at) => (at === 0 ? 'bgGray' : `bg${name}Bright`)),
};

for (const [name, others] of Object.entries({
  gray: ['grey', 'blackBright'],
  bgGray: ['bgGrey', 'bgBlackBright'],
  dim: ['faint'],
  strikethrough: ['crossedout', 'strikeThrough', 'crossedOut'],
  hidden: ['conceal'],
  inverse: ['swapColors', 'swapcolors'],
  doubleunderline: ['doubleUnderline'],
}))
  for (const other of others)
    Object.defineProperty(colors, other, {
      get: () => colors[name],
      set(value) {
        colors[name] = value;
      },
      configurable: true,
      enumerable: false,
    });
