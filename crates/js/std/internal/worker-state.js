// What this engine is among those of its plugin.

import native from 'native/worker';

export const thread = {
  isMain: !native.isWorker(),
  id: 0,
  name: '',
  data: null,
  port: null,
  limits: {},
  environment: new Map(),
};
