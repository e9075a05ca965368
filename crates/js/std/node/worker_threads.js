import { absent } from 'internal/absent';

export const BroadcastChannel = absent('worker_threads.BroadcastChannel', 'use node:child_process');
export const MessageChannel = absent('worker_threads.MessageChannel', 'use node:child_process');
export const MessagePort = absent('worker_threads.MessagePort', 'use node:child_process');
export const Worker = absent('worker_threads.Worker', 'use node:child_process');
export const moveMessagePortToContext = absent(
  'worker_threads.moveMessagePortToContext',
  'use node:child_process',
);
export const receiveMessageOnPort = absent('worker_threads.receiveMessageOnPort', 'use node:child_process');

export default {
  BroadcastChannel,
  MessageChannel,
  MessagePort,
  Worker,
  moveMessagePortToContext,
  receiveMessageOnPort,
};
