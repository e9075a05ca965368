// `util.parseArgs`.

import process from 'node:process';
import { coded, wrongType } from 'internal/errors';

function unknown(option) {
  return coded(TypeError, 'ERR_PARSE_ARGS_UNKNOWN_OPTION', `Unknown option '${option}'`);
}

export function parseArgs(config = {}) {
  const {
    args = process.argv.slice(2),
    options = {},
    strict = true,
    allowPositionals = !strict,
    tokens: wantTokens = false,
  } = config;
  const values = Object.create(null);
  const positionals = [];
  const tokens = [];

  const store = (name, value, spelt, index, inline) => {
    const option = options[name];
    if (strict && !option) throw unknown(spelt);
    if (strict && option.type === 'string' && typeof value !== 'string') {
      throw coded(
        TypeError,
        'ERR_PARSE_ARGS_INVALID_OPTION_VALUE',
        `Option '${spelt} <value>' argument missing`,
      );
    }
    if (strict && option.type === 'boolean' && value !== undefined && typeof value !== 'boolean') {
      throw coded(
        TypeError,
        'ERR_PARSE_ARGS_INVALID_OPTION_VALUE',
        `Option '${spelt}' does not take an argument`,
      );
    }
    tokens.push({ kind: 'option', name, rawName: spelt, index, value, inlineValue: inline });
    const kept = value ?? true;
    if (option?.multiple) (values[name] ??= []).push(kept);
    else values[name] = kept;
  };

  const byShort = (letter) => Object.keys(options).find((name) => options[name].short === letter) ?? letter;

  for (const name of Object.keys(options)) {
    if (options[name].type !== 'string' && options[name].type !== 'boolean') {
      throw wrongType(`options.${name}.type`, "one of 'string', 'boolean'", options[name].type);
    }
  }
  const left = [...args];
  let index = -1;
  while (left.length > 0) {
    const given = left.shift();
    index += 1;
    if (given === '--') {
      tokens.push({ kind: 'option-terminator', index });
      for (const value of left.splice(0)) {
        index += 1;
        tokens.push({ kind: 'positional', index, value });
        positionals.push(value);
      }
    } else if (given.startsWith('--')) {
      const at = given.indexOf('=');
      const spelt = at < 0 ? given : given.slice(0, at);
      let name = spelt.slice(2);
      let value = at < 0 ? undefined : given.slice(at + 1);
      if (config.allowNegative && name.startsWith('no-') && options[name.slice(3)]?.type === 'boolean') {
        [name, value] = [name.slice(3), false];
      } else if (at < 0 && options[name]?.type === 'string' && left.length > 0) {
        value = left.shift();
      }
      store(name, value, spelt, index, at >= 0);
    } else if (given.startsWith('-') && given.length > 1) {
      let rest = given.slice(1);
      while (rest !== '') {
        const letter = rest[0];
        rest = rest.slice(1);
        const name = byShort(letter);
        if (options[name]?.type === 'string') {
          store(name, rest !== '' ? rest : left.shift(), `-${letter}`, index, rest !== '');
          break;
        }
        store(name, undefined, `-${letter}`, index, undefined);
      }
    } else {
      if (!allowPositionals) {
        const message = `Unexpected argument '${given}'. This command does not take positional arguments`;
        throw coded(TypeError, 'ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL', message);
      }
      tokens.push({ kind: 'positional', index, value: given });
      positionals.push(given);
    }
  }
  for (const name of Object.keys(options)) {
    if (options[name].default !== undefined && values[name] === undefined)
      values[name] = options[name].default;
  }
  return wantTokens ? { values, positionals, tokens } : { values, positionals };
}
