// How a readable stream writes to others.

import { fail } from 'internal/stream/base';
import { nextTick } from 'internal/ticks';

/** Methods of readable streams. */
export const piping = {
  pipe(to, options) {
    const state = this._readableState;
    state.pipes.push(to);
    const ends =
      options?.end !== false && to !== globalThis.process?.stdout && to !== globalThis.process?.stderr;
    let drains = false;
    let isGone = false;
    const drain = () => {
      state.awaitDrainWriters.delete(to);
      if (state.awaitDrainWriters.size === 0 && this.listenerCount('data') > 0) this.resume();
    };
    const wait = () => {
      if (!isGone) {
        state.awaitDrainWriters.add(to);
        this.pause();
      }
      if (!drains) to.on('drain', drain);
      drains = true;
    };
    const data = (chunk) => {
      let room;
      try {
        room = to.write(chunk);
      } catch (error) {
        to.destroy(error);
      }
      if (room === false) wait();
    };
    const end = () => (ends ? to.end() : gone());
    const unpipe = (from, info) => {
      if (from !== this || info?.hasUnpiped !== false) return;
      info.hasUnpiped = true;
      isGone = true;
      this.removeListener('data', data);
      this.removeListener('end', end);
      if (drains) to.removeListener('drain', drain);
      to.removeListener('unpipe', unpipe);
      to.removeListener('error', failed);
      to.removeListener('close', gone);
      to.removeListener('finish', gone);
      if (drains && state.awaitDrainWriters.size > 0 && (!to._writableState || to.writableNeedDrain)) drain();
    };
    const gone = () => this.unpipe(to);
    const failed = (error) => {
      this.unpipe(to);
      to.removeListener('error', failed);
      if (to.listenerCount('error') > 0) return;
      if (to._streamEnd && !to._streamEnd.errorTold) fail(to, error);
      else to.emit('error', error);
    };
    if (state.endEmitted) nextTick(end);
    else this.once('end', end);
    to.on('unpipe', unpipe);
    this.on('data', data);
    to.prependListener('error', failed);
    to.once('close', gone);
    to.once('finish', gone);
    to.emit('pipe', this);
    if (to.writableNeedDrain === true) wait();
    else if (!state.flowing) this.resume();
    return to;
  },

  unpipe(to) {
    const state = this._readableState;
    if (to === undefined) {
      const gone = state.pipes;
      state.pipes = [];
      if (gone.length > 0) this.pause();
      for (const each of gone) each.emit('unpipe', this, { hasUnpiped: false });
      return this;
    }
    const at = state.pipes.indexOf(to);
    if (at === -1) return this;
    state.pipes = state.pipes.filter((_, other) => other !== at);
    if (state.pipes.length === 0) this.pause();
    to.emit('unpipe', this, { hasUnpiped: false });
    return this;
  },
};
