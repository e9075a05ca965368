import { EventEmitter } from 'node:events';
import { absent } from 'internal/absent';

const instead = 'every plugin has its own thread; run the work as another plugin, or with node:child_process';

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
