// A synthetic floor: Node imports the small plugin, applies it to a host that only remembers, and says so. It reads
// no configuration, opens no port and keeps nothing.

import { writeSync } from 'node:fs';

import { apply } from './small-plugin.mjs';

const registered = [];
apply({ registerTool: (tool) => registered.push(tool) }, {});
writeSync(2, 'plugin small applied\n');
// Stays, as a host does.
setInterval(() => {}, 1_000_000);
