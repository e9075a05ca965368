import {
  BroadcastChannel,
  MessageChannel,
  MessagePort,
  receiveMessageOnPort,
  refuse,
} from 'internal/messaging';
import { SHARE_ENV, Worker } from 'internal/worker';
import { thread } from 'internal/worker-state';

export const moveMessagePortToContext = undefined;
export const postMessageToThread = undefined;
export const isMainThread = thread.isMain;
export const isInternalThread = false;
export const parentPort = thread.port;
export const threadId = thread.id;
export const threadName = thread.name;
export const workerData = thread.data;
export const resourceLimits = thread.limits;

export const setEnvironmentData = (key, value) => {
  if (value === undefined) thread.environment.delete(key);
  else thread.environment.set(key, value);
};
export const getEnvironmentData = (key) => thread.environment.get(key);

const kept = new WeakSet();
export const markAsUntransferable = (object) => {
  if (object !== null && typeof object === 'object') kept.add(object);
};
export const isMarkedAsUntransferable = (object) => kept.has(object);
export const markAsUncloneable = (object) => {
  if (object !== null && typeof object === 'object') refuse(object);
};

export { BroadcastChannel, MessageChannel, MessagePort, SHARE_ENV, Worker, receiveMessageOnPort };
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
  parentPort,
  receiveMessageOnPort,
  resourceLimits,
  setEnvironmentData,
  threadId,
  threadName,
  workerData,
};
