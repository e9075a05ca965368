import { checkFunction, coded, wrongType } from 'internal/errors';

const channels = new Map();

/** What one of many throws is an uncaught error, and the others run. */
function fail(error) {
  queueMicrotask(() => {
    throw error;
  });
}

export class Channel {
  #subscribers = [];
  #stores = new Map();

  constructor(name) {
    this.name = name;
  }

  get hasSubscribers() {
    return this.#subscribers.length > 0 || this.#stores.size > 0;
  }

  subscribe(subscriber) {
    checkFunction(subscriber, 'subscription');
    this.#subscribers = [...this.#subscribers, subscriber];
  }

  unsubscribe(subscriber) {
    const at = this.#subscribers.indexOf(subscriber);
    if (at < 0) return false;
    this.#subscribers = this.#subscribers.toSpliced(at, 1);
    return true;
  }

  publish(message) {
    for (const subscriber of this.#subscribers) {
      try {
        subscriber(message, this.name);
      } catch (error) {
        fail(error);
      }
    }
  }

  bindStore(store, transform) {
    this.#stores.set(store, transform);
  }

  unbindStore(store) {
    return this.#stores.delete(store);
  }

  runStores(context, run, thisArg, ...given) {
    let call = () => {
      this.publish(context);
      return Reflect.apply(run, thisArg, given);
    };
    for (const [store, transform] of this.#stores) {
      const within = call;
      call = () => {
        let value = context;
        try {
          if (transform) value = transform(context);
        } catch (error) {
          fail(error);
          return within();
        }
        return store.run(value, within);
      };
    }
    return call();
  }
}

export function channel(name) {
  if (typeof name !== 'string' && typeof name !== 'symbol')
    throw wrongType('channel', 'of type string or symbol', name);
  if (!channels.has(name)) channels.set(name, new Channel(name));
  return channels.get(name);
}

export const hasSubscribers = (name) => channels.get(name)?.hasSubscribers ?? false;
export const subscribe = (name, subscriber) => channel(name).subscribe(subscriber);
export const unsubscribe = (name, subscriber) => channel(name).unsubscribe(subscriber);

const parts = ['start', 'end', 'asyncStart', 'asyncEnd', 'error'];

class TracingChannel {
  constructor(named) {
    for (const part of parts)
      this[part] = typeof named === 'string' ? channel(`tracing:${named}:${part}`) : named[part];
  }

  get hasSubscribers() {
    return parts.some((part) => this[part]?.hasSubscribers);
  }

  subscribe(handlers) {
    for (const part of parts) if (handlers[part]) this[part]?.subscribe(handlers[part]);
  }

  unsubscribe(handlers) {
    let done = true;
    for (const part of parts) if (handlers[part] && !this[part]?.unsubscribe(handlers[part])) done = false;
    return done;
  }

  #fail(context, error) {
    context.error = error;
    this.error.publish(context);
  }

  traceSync(run, context = {}, thisArg, ...given) {
    if (!this.hasSubscribers) return Reflect.apply(run, thisArg, given);
    return this.start.runStores(context, () => {
      try {
        const result = Reflect.apply(run, thisArg, given);
        context.result = result;
        return result;
      } catch (error) {
        this.#fail(context, error);
        throw error;
      } finally {
        this.end.publish(context);
      }
    });
  }

  tracePromise(run, context = {}, thisArg, ...given) {
    if (!this.hasSubscribers) return Reflect.apply(run, thisArg, given);
    const settle = (key) => (value) => {
      if (key === 'error') this.#fail(context, value);
      else context.result = value;
      this.asyncStart.publish(context);
      this.asyncEnd.publish(context);
      if (key === 'error') return Promise.reject(value);
      return value;
    };
    return this.start.runStores(context, () => {
      try {
        let promise = Reflect.apply(run, thisArg, given);
        if (!(promise instanceof Promise)) promise = Promise.resolve(promise);
        return promise.then(settle('result'), settle('error'));
      } catch (error) {
        this.#fail(context, error);
        throw error;
      } finally {
        this.end.publish(context);
      }
    });
  }

  traceCallback(run, position = -1, context = {}, thisArg = undefined, ...given) {
    if (!this.hasSubscribers) return Reflect.apply(run, thisArg, given);
    const callback = given.at(position);
    checkFunction(callback, 'callback');
    const wrapped = (...answer) => {
      const [error, result] = answer;
      if (error) this.#fail(context, error);
      else context.result = result;
      return this.asyncStart.runStores(context, () => {
        try {
          return Reflect.apply(callback, undefined, answer);
        } finally {
          this.asyncEnd.publish(context);
        }
      });
    };
    given.splice(position, 1, wrapped);
    return this.start.runStores(context, () => {
      try {
        return Reflect.apply(run, thisArg, given);
      } catch (error) {
        this.#fail(context, error);
        throw error;
      } finally {
        this.end.publish(context);
      }
    });
  }
}

export function tracingChannel(named) {
  if (typeof named !== 'string' && (typeof named !== 'object' || named === null)) {
    throw coded(
      TypeError,
      'ERR_INVALID_ARG_TYPE',
      'The "nameOrChannels" argument must be of type string or an instance of TracingChannel or Object',
    );
  }
  return new TracingChannel(named);
}

export default { Channel, channel, hasSubscribers, subscribe, tracingChannel, unsubscribe };
