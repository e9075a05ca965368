import os from 'node:os';
import fs from 'node:fs';
import { constants as crypto } from 'node:crypto';

export default {
  ...os.constants.errno,
  ...os.constants.priority,
  ...os.constants.signals,
  ...fs.constants,
  ...crypto,
};
