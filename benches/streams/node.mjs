// measure.mjs under Node; the argument is the port of server.mjs.

import { measure } from './measure.mjs';

const figures = await measure(Number(process.argv[2]), () => process.memoryUsage().rss);
console.log(JSON.stringify(figures));
