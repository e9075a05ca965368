// A synthetic floor: Node imports the plugins whose modules it is given, applies each to a host that only remembers, and
// says so. It reads no configuration, opens no port and keeps nothing.

import { writeSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const registered = [];
for (const path of process.argv.slice(2)) {
  const { apply } = await import(pathToFileURL(path));
  apply({ registerTool: (tool) => registered.push(tool) }, {});
  writeSync(2, 'plugin small applied\n');
}
// Stays, as a host does.
setInterval(() => {}, 1_000_000);
