// Runs the programs of one area on Node: `node run.mjs <area> <first> <count>`.
const [area, first, count] = process.argv.slice(2);
const { default: program } = await import(`./${area}.mjs`);
// As in the engine, a rejection that nobody handles ends nothing.
process.on('unhandledRejection', () => {});
const answers = [];
for (let seed = Number(first); seed < Number(first) + Number(count); seed += 1) answers.push(await program(seed));
process.stdout.write(JSON.stringify(answers), () => process.exit(0));
