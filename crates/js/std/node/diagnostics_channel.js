import { checkFunction } from 'internal/errors';

const channels = new Map();

export class Channel {
  #subscribers = [];

  constructor(name) {
    this.name = name;
  }

  get hasSubscribers() {
    return this.#subscribers.length > 0;
  }

  subscribe(subscriber) {
    checkFunction(subscriber, 'subscription');
    this.#subscribers = [...this.#subscribers, subscriber];
  }

  unsubscribe(subscriber) {
    const before = this.#subscribers.length;
    this.#subscribers = this.#subscribers.filter((known) => known !== subscriber);
    return this.#subscribers.length < before;
  }

  publish(message) {
    for (const subscriber of this.#subscribers) subscriber(message, this.name);
  }

  bindStore() {}
  unbindStore() {}
  runStores(context, run, thisArg, ...given) {
    this.publish(context);
    return run.apply(thisArg, given);
  }
}

export function channel(name) {
  if (!channels.has(name)) channels.set(name, new Channel(name));
  return channels.get(name);
}

export const hasSubscribers = (name) => channels.get(name)?.hasSubscribers ?? false;
export const subscribe = (name, subscriber) => channel(name).subscribe(subscriber);
export const unsubscribe = (name, subscriber) => channel(name).unsubscribe(subscriber);

export function tracingChannel(name) {
  const parts = Object.fromEntries(
    ['start', 'end', 'asyncStart', 'asyncEnd', 'error'].map((part) => [
      part,
      channel(`tracing:${name}:${part}`),
    ]),
  );
  return {
    ...parts,
    hasSubscribers: false,
    traceSync: (run, context, thisArg, ...given) => run.apply(thisArg, given),
    tracePromise: (run, context, thisArg, ...given) => run.apply(thisArg, given),
    traceCallback: (run, position, context, thisArg, ...given) => run.apply(thisArg, given),
    subscribe(handlers) {
      for (const part in handlers) parts[part]?.subscribe(handlers[part]);
    },
    unsubscribe(handlers) {
      for (const part in handlers) parts[part]?.unsubscribe(handlers[part]);
    },
  };
}

export default { Channel, channel, hasSubscribers, subscribe, tracingChannel, unsubscribe };
