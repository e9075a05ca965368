// Runs one program under Node: `node node.mjs <name> <addresses>`.
globalThis.servers = JSON.parse(process.argv[3]);
const { default: run } = await import(`./uses/${process.argv[2]}.mjs`);
process.stdout.write(`packages answer ${JSON.stringify(await run())}\n`, () => process.exit(0));
