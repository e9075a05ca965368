import { EventEmitter } from 'node:events';
import { StringDecoder } from 'node:string_decoder';
import { coded } from 'internal/errors';

/** Lines of a stream. */
export class Interface extends EventEmitter {
  #decoder = new StringDecoder('utf8');
  #rest = '';
  #paused = false;
  #prompt;
  #question = null;
  line = '';
  closed = false;
  terminal = false;

  constructor(input, output) {
    super();
    const options = input?.input ? input : { input, output };
    this.input = options.input;
    this.output = options.output;
    this.#prompt = options.prompt ?? '> ';
    this.input.on('data', this.#take);
    this.input.on('end', this.#end);
    this.input.on('error', this.#fail);
    options.signal?.addEventListener('abort', () => this.close(), { once: true });
    this.input.resume?.();
  }

  #take = (chunk) => {
    const text = this.#rest + (typeof chunk === 'string' ? chunk : this.#decoder.write(chunk));
    const lines = text.split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) this.#say(line);
  };

  #end = () => {
    const rest = this.#rest + this.#decoder.end();
    this.#rest = '';
    if (rest !== '') this.#say(rest.replace(/\r$/, ''));
    this.close();
  };

  #fail = (error) => {
    this.emit('error', error);
  };

  #say(line) {
    if (this.closed) return;
    const answer = this.#question;
    this.#question = null;
    if (answer) answer(line);
    else this.emit('line', line);
  }

  question(query, options, callback) {
    if (typeof options === 'function') callback = options;
    if (this.closed) throw coded(Error, 'ERR_USE_AFTER_CLOSE', 'readline was closed');
    this.output?.write(query);
    this.#question = callback;
  }

  setPrompt(prompt) {
    this.#prompt = prompt;
  }
  getPrompt() {
    return this.#prompt;
  }
  prompt() {
    this.output?.write(this.#prompt);
  }
  write(text) {
    this.#take(text);
  }

  pause() {
    if (!this.#paused) {
      this.input.pause?.();
      this.#paused = true;
      this.emit('pause');
    }
    return this;
  }

  resume() {
    if (this.#paused) {
      this.input.resume?.();
      this.#paused = false;
      this.emit('resume');
    }
    return this;
  }

  close() {
    if (this.closed) return;
    this.closed = true;
    this.input.removeListener('data', this.#take);
    this.input.removeListener('end', this.#end);
    this.input.removeListener('error', this.#fail);
    this.input.pause?.();
    this.emit('close');
  }

  [Symbol.dispose]() {
    this.close();
  }

  async *[Symbol.asyncIterator]() {
    const lines = [];
    let wake = () => {};
    let over = this.closed;
    let failure;
    const take = (line) => {
      lines.push(line);
      wake();
    };
    const end = () => {
      over = true;
      wake();
    };
    const fail = (error) => {
      failure = { error };
      wake();
    };
    this.on('line', take);
    this.on('close', end);
    this.on('error', fail);
    try {
      for (;;) {
        if (lines.length > 0) yield lines.shift();
        else if (failure) throw failure.error;
        else if (over) return;
        else {
          await new Promise((resolve) => {
            wake = resolve;
          });
        }
      }
    } finally {
      this.off('line', take);
      this.off('close', end);
      this.off('error', fail);
      this.close();
    }
  }
}
