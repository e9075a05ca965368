import { absent } from 'internal/absent';
import { abortError } from 'internal/errors';
import { Interface } from 'internal/readline';

export function createInterface(input, output) {
  const lines = new Interface(input, output);
  const ask = lines.question.bind(lines);
  lines.question = (query, options) =>
    new Promise((resolve, reject) => {
      if (options?.signal?.aborted) {
        reject(abortError(options.signal));
        return;
      }
      options?.signal?.addEventListener('abort', () => reject(abortError(options.signal)), { once: true });
      ask(query, resolve);
    });
  return lines;
}

export const Readline = absent('readline.promises.Readline', 'a plugin has no terminal');

export { Interface };
export default { Interface, Readline, createInterface };
