// Runs the program on Node.
import program from './program.mjs';

process.stdout.write(JSON.stringify(await program(JSON.parse(process.argv[2]))), () => process.exit(0));
