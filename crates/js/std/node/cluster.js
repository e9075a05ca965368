import { EventEmitter } from 'node:events';
import { absent } from 'internal/absent';

const instead = 'a plugin is one of the processes of its host; use a Worker of node:worker_threads';

class Cluster extends EventEmitter {
  isMaster = true;
  isPrimary = true;
  isWorker = false;
  workers = {};
  settings = {};
  SCHED_NONE = 1;
  SCHED_RR = 2;
  schedulingPolicy = 2;
  Worker = absent('cluster.Worker', instead);
  fork = absent('cluster.fork', instead);
  setupMaster = absent('cluster.setupMaster', instead);
  setupPrimary = absent('cluster.setupPrimary', instead);

  disconnect = (callback) => {
    if (callback) process.nextTick(callback);
  };
}

const cluster = new Cluster();

export const {
  SCHED_NONE,
  SCHED_RR,
  Worker,
  disconnect,
  fork,
  isMaster,
  isPrimary,
  isWorker,
  schedulingPolicy,
  settings,
  setupMaster,
  setupPrimary,
  workers,
} = cluster;
export default cluster;
