import { absent } from 'internal/absent';
import { BroadcastChannel, MessageChannel, MessagePort, receiveMessageOnPort } from 'internal/messaging';

const instead = 'every plugin has its own thread; run the work as another plugin, or with node:child_process';

export const Worker = absent('worker_threads.Worker', instead);
export const moveMessagePortToContext = absent('worker_threads.moveMessagePortToContext', instead);
export const postMessageToThread = absent('worker_threads.postMessageToThread', instead);
export const isMainThread = true;
export const isInternalThread = false;
export const parentPort = null;
export const threadId = 0;
export const threadName = '';
export const workerData = null;
export const resourceLimits = {};
export const SHARE_ENV = Symbol.for('nodejs.worker_threads.SHARE_ENV');

const data = new Map();
export const setEnvironmentData = (key, value) => {
  if (value === undefined) data.delete(key);
  else data.set(key, value);
};
export const getEnvironmentData = (key) => data.get(key);

const kept = new WeakSet();
export const markAsUntransferable = (object) => {
  if (object !== null && typeof object === 'object') kept.add(object);
};
export const isMarkedAsUntransferable = (object) => kept.has(object);
export const markAsUncloneable = () => {};

export { BroadcastChannel, MessageChannel, MessagePort, receiveMessageOnPort };
export default {
  BroadcastChannel,
  MessageChannel,
  MessagePort,
  SHARE_ENV,
  Worker,
  getEnvironmentData,
  isInternalThread,
  isMainThread,
  isMarkedAsUntransferable,
  markAsUncloneable,
  markAsUntransferable,
  moveMessagePortToContext,
  parentPort,
  postMessageToThread,
  receiveMessageOnPort,
  resourceLimits,
  setEnvironmentData,
  threadId,
  threadName,
  workerData,
};
