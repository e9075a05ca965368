/**
 * Drives VS Code's web UI against a host, step by step. Each step asserts what the UI shows and what the host has, and
 * takes a screenshot.
 *
 *     node check.mjs --ostler PROGRAM --tools FOLDER --output FOLDER
 */

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import { Client } from './client.mjs';

const text = { type: 'string' };
const { values: options } = parseArgs({ options: { ostler: text, tools: text, output: text, steps: text } });
options.output = path.resolve(options.output);
const require = createRequire(path.join(path.resolve(options.tools), 'package.json'));
const { chromium } = require('playwright-core');

const TOKEN = 'vscode-check';
const WAIT = 20_000;

const root = mkdtempSync(path.join(tmpdir(), 'ostler-vscode-'));
const repo = path.join(root, 'work/repo');
const wire = path.join(options.output, 'wire.jsonl');
const started = [];

rmSync(options.output, { recursive: true, force: true });
mkdirSync(options.output, { recursive: true });

const git = (...words) => execFileSync('git', ['-C', repo, ...words], { encoding: 'utf8' }).trim();
const read = (file) => readFileSync(path.join(repo, file), 'utf8');

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Retries until it returns something true, and returns that. */
async function until(what, ask) {
  const end = Date.now() + WAIT;
  for (;;) {
    const found = await ask();
    if (found) {
      return found;
    }
    assert(Date.now() < end, `timed out: ${what}`);
    await sleep(100);
  }
}

/** Starts a program whose output is in a file of the output folder. */
function start(name, program, words, settings) {
  const log = openSync(path.join(options.output, `${name}.log`), 'a');
  const child = spawn(program, words, { stdio: ['ignore', log, log], ...settings });
  closeSync(log);
  started.push(child);
  return child;
}

const hostPort = await freePort();
const windowPort = await freePort();

function makeRepository() {
  mkdirSync(repo, { recursive: true });
  writeFileSync(path.join(repo, 'README.md'), '# Demo\n\nFirst line.\n');
  writeFileSync(path.join(repo, 'main.rs'), 'fn main() {}\n');
  git('init', '-q', '-b', 'main');
  git('config', 'user.name', 'Ada');
  git('config', 'user.email', 'ada@example.com');
  git('add', '-A');
  git('commit', '-qm', 'First');
}

function startHost() {
  const folder = path.join(root, 'config/ostler');
  mkdirSync(folder, { recursive: true });
  const agent = {
    command: process.execPath,
    args: [path.resolve(import.meta.dirname, 'agent.mjs')],
    name: 'Script',
  };
  const config = {
    port: hostPort,
    paths: [path.dirname(repo)],
    wire,
    plugins: [
      { name: '@ostler/acp', options: { agents: { script: agent } } },
      { name: '@ostler/terminal', options: { shellIntegration: true } },
      { name: '@ostler/git' },
    ],
  };
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(config, undefined, 2));
  const env = {
    ...process.env,
    HOME: root,
    XDG_CONFIG_HOME: path.join(root, 'config'),
    XDG_STATE_HOME: path.join(root, 'state'),
    SHELL: '/bin/bash',
  };
  return start('host', options.ostler, ['--connection-token', TOKEN], { cwd: root, env });
}

function startWindow() {
  const user = path.join(root, 'user/User');
  mkdirSync(user, { recursive: true });
  const settings = { 'files.autoSave': 'off', 'workbench.startupEditor': 'none' };
  writeFileSync(path.join(user, 'settings.json'), JSON.stringify(settings));
  const words = [
    require.resolve('code-server'),
    ...['--auth', 'none', '--bind-addr', `127.0.0.1:${windowPort}`],
    ...['--user-data-dir', path.dirname(user), '--extensions-dir', path.join(root, 'extensions')],
    ...['--disable-telemetry', '--disable-update-check', '--disable-workspace-trust'],
    ...['--vscode-option', 'agent-host-bridge-host=127.0.0.1'],
    ...['--vscode-option', `agent-host-bridge-port=${hostPort}`],
    ...['--vscode-option', `agent-host-bridge-connection-token=${TOKEN}`],
  ];
  // An address that refuses connections, so that nothing is looked up elsewhere.
  const nowhere = { serviceUrl: 'http://127.0.0.1:9/', itemUrl: 'http://127.0.0.1:9/' };
  const env = { ...process.env, HOME: root, EXTENSIONS_GALLERY: JSON.stringify(nowhere) };
  return start('window', process.execPath, words, { cwd: root, env });
}

const connect = () => until('the host answers', () => Client.connect(hostPort, TOKEN).catch(() => undefined));

makeRepository();
let host = startHost();
startWindow();
let client = await connect();
await until('the window answers', () =>
  fetch(`http://127.0.0.1:${windowPort}/healthz`).then(
    () => true,
    () => false,
  ),
);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
const page = await browser.newPage({ viewport: { width: 1500, height: 1400 } });
page.setDefaultTimeout(WAIT);

/** Errors of the developer console that concern the host. */
const errors = [];
page.on('pageerror', (error) => errors.push(String(error)));
page.on('console', (message) => {
  const line = message.text();
  if (
    message.type() === 'error' &&
    /UriError|AgentHost|agent host|Cannot (read|destructure)|is not iterable/.test(line)
  ) {
    errors.push(line);
  }
});

const chat = page.locator('.interactive-session');
const input = page.locator('.interactive-input-part .monaco-editor').last();
const requests = page.locator('.monaco-list-rows .interactive-request');
const menu = page.locator('.context-view');
const sessionRows = page.locator('.agent-sessions-viewer .monaco-list-rows .monaco-list-row');

const open = (folder) => page.goto(`http://127.0.0.1:${windowPort}/?folder=${encodeURIComponent(folder)}`);

async function type(words) {
  await page.mouse.move(750, 700);
  await input.click();
  await page.keyboard.press('ControlOrMeta+A');
  await page.keyboard.type(words);
}

/** Sends a message and waits for the agent's answer. */
async function send(words, answer) {
  await type(words);
  await page.keyboard.press('Escape');
  await page.keyboard.press('Enter');
  await chat.getByText(answer).last().waitFor();
}

/** Runs a command of the command palette, by its whole label, with or without the category. */
async function command(label) {
  await page.keyboard.press('F1');
  await page.locator('.quick-input-widget input').first().fill(`>${label}`);
  const rows = page.locator('.quick-input-list .monaco-list-row');
  await rows
    .filter({ hasText: new RegExp(`^\\s*(\\w+: )?${RegExp.escape(label)}(?!\\w)`) })
    .first()
    .click();
}

/** Chooses an item of a session's menu. */
async function choose(title, item) {
  await sessionRows.filter({ hasText: title }).first().click({ button: 'right' });
  // A menu ignores the mouse when it has just opened.
  await sleep(500);
  await menu.getByText(item, { exact: true }).click();
}

/** The host's newest session, which the window is in. */
async function session() {
  const listed = await client.sessions();
  return listed.toSorted((one, other) => other.createdAt.localeCompare(one.createdAt))[0]?.resource;
}

async function turns() {
  const ended = await until('the turn ends', async () => {
    const { turns: all, activeTurn } = await client.chat(await session());
    return activeTurn === undefined && all;
  });
  return ended.map((turn) => turn.message.text);
}

/** The button of a message that is shown above it. */
async function press(message, button) {
  const row = requests.filter({ hasText: message }).first();
  await row.scrollIntoViewIfNeeded();
  await row.hover();
  await row.locator(button).first().click();
}

async function chooseScript() {
  const harness = page.locator('.chat-secondary-toolbar');
  const script = page.locator('.action-widget').getByText('Script', { exact: true });
  // The list is not filled while it is open.
  await until('the agent is offered', async () => {
    await harness.getByText('Local', { exact: true }).click();
    const offered = await script.isVisible();
    await (offered ? script.click() : page.keyboard.press('Escape'));
    return offered;
  });
  await harness.getByText('Script', { exact: true }).waitFor();
}

const steps = {
  'open a repository': async () => {
    await open(repo);
    await page.locator('.explorer-folders-view').getByText('README.md').waitFor();
    await until('the window connects', () => readFileSync(wire, 'utf8').includes('vscode-editor-window'));
    await chooseScript();
    // A message that is sent earlier creates a session without a directory.
    await until('the draft is created', () =>
      /"createSession".*"workingDirectories"/.test(readFileSync(wire, 'utf8')),
    );
    await sleep(1000);
  },

  'settings are accepted': async () => {
    const refused = readFileSync(wire, 'utf8')
      .split('\n')
      .filter((line) => line.includes('rejectionReason'));
    assert.deepEqual(refused, []);
  },

  'a prompt edits a file': async () => {
    await send('write notes.txt Hello', 'Prompt 1: write notes.txt Hello');
    await chat.getByText('1 file changed').waitFor();
    await chat.getByText('1 File', { exact: true }).waitFor();
    assert.equal(read('notes.txt'), 'Hello\n');
    assert.deepEqual(await turns(), ['write notes.txt Hello']);
    const [{ workingDirectories, status }] = await client.sessions();
    assert.deepEqual([workingDirectories, status & 1], [[`file://${repo}`], 1]);
  },

  'the changes are shown': async () => {
    await send('write README.md Changed', 'Prompt 2: write README.md Changed');
    await chat.getByText('2 Files', { exact: true }).click();
    const editors = page.locator('.multiDiffEditor');
    await editors.getByText('notes.txt').first().waitFor();
    await editors.getByText('First line.').first().waitFor();
    await editors.getByText('Changed').first().waitFor();
    const { files } = await client.state(`${await session()}/changeset/session`);
    assert.deepEqual(files.map((file) => path.basename(file.id)).toSorted(), ['README.md', 'notes.txt']);
  },

  // The web UI has no control for it: its sources never dispatch changeset/filesReviewChanged.
  'a review of another client is taken': async () => {
    const channel = `${await session()}/changeset/session`;
    const { files } = await client.state(channel);
    client.dispatch(channel, { type: 'changeset/filesReviewChanged', files: [files[0].id], reviewed: true });
    await until('the file is reviewed', async () => (await client.state(channel)).files[0].reviewed === true);
    await chat.getByText('2 Files', { exact: true }).waitFor();
  },

  // Nor for this: nothing in its sources calls invokeChangesetOperation.
  'a commit of another client is shown': async () => {
    const channel = `${await session()}/changeset/uncommitted`;
    const message = { 'ostler.commit': { message: 'Two files' } };
    await client.request('invokeChangesetOperation', { channel, operationId: 'commit', _meta: message });
    assert.equal(git('log', '-1', '--format=%s'), 'Two files');
    const about = await until('the host counts none', async () => {
      const { _meta } = await client.state(await session());
      return _meta?.git?.uncommittedChanges === 0 && _meta.git;
    });
    assert.equal(about.branchName, 'main');
    await page.locator('.statusbar-item').getByText('main', { exact: true }).waitFor();
  },

  '!ls runs in a terminal': async () => {
    await send('!ls', 'Ran');
    const told = await turns();
    const { turns: ended } = await client.chat(await session());
    assert.equal(told.at(-1), '!ls');
    const { toolCall } = ended.at(-1).responseParts.find((part) => part.toolCall);
    assert.deepEqual([toolCall.toolInput, toolCall.content[0].result.exitCode], ['ls', 0]);
    assert.match(toolCall.content[0].result.preview, /notes\.txt/);
  },

  'a terminal of the host': async () => {
    await command('Create New Terminal (With Profile)');
    await page.locator('.quick-input-list .monaco-list-row').filter({ hasText: 'Agent Host' }).click();
    const [terminal] = await until('the host lists it', async () => {
      const { terminals } = await client.state('ahp-root://');
      const open = terminals.filter(({ lifecycle }) => lifecycle.status === 'running');
      return open.length > 0 && open;
    });
    await command('Terminal: Focus Terminal');
    await page.locator('.terminal-wrapper.active .xterm-screen').click();
    await page.keyboard.type('echo it-is-$((40+2))\n');
    await until('its output', async () =>
      JSON.stringify(await client.state(terminal.resource)).includes('it-is-42'),
    );
    await command('Terminal: Kill the Active Terminal Instance');
    await until('it is gone', async () =>
      (await client.state('ahp-root://')).terminals.every(({ resource }) => resource !== terminal.resource),
    );
  },

  'an unsaved file is attached': async () => {
    await page.locator('.explorer-folders-view').getByText('main.rs').dblclick();
    await page.locator('.editor-group-container .monaco-editor .view-lines').first().click();
    await page.keyboard.press('ControlOrMeta+End');
    await page.keyboard.type('// new');
    await page.locator('.tab.dirty').getByText('main.rs').waitFor();
    await page.locator('.chat-attached-context').getByText('main.rs').click();
    await send('look at this', 'Attached: main.rs');
    const { turns: ended } = await client.chat(await session());
    assert.deepEqual(
      ended.at(-1).message.attachments.map(({ label }) => label),
      ['main.rs'],
    );
    // The window saves it before it sends the message.
    assert.equal(read('main.rs'), 'fn main() {}\n// new');
  },

  'an earlier message is edited': async () => {
    await send('a question', /Prompt \d+: .*a question/s);
    const row = requests.filter({ hasText: 'a question' }).first();
    await row.locator('.rendered-markdown').click();
    const editor = row.locator('.monaco-editor').first();
    await editor.waitFor();
    await page.keyboard.press('ControlOrMeta+A');
    await page.keyboard.type('another question');
    await page.keyboard.press('Enter');
    await chat
      .getByText(/Prompt \d+: .*another question/s)
      .last()
      .waitFor();
    const told = await turns();
    assert.equal(told.at(-1), 'another question');
    assert(!told.includes('a question'), JSON.stringify(told));
  },

  'a conversation is forked': async () => {
    const before = (await client.state(await session())).chats.length;
    const told = await turns();
    await press('another question', '.chat-fork-action-label');
    const chats = await until('the host has the fork', async () => {
      const { chats } = await client.state(await session());
      return chats.length > before && chats;
    });
    const fork = await client.state(chats.at(-1).resource);
    assert.equal(fork.origin.kind, 'fork');
    assert.deepEqual(
      fork.turns.map((turn) => turn.message.text),
      told.slice(0, -1),
    );
    await until(
      'the window shows the fork',
      async () => !(await chat.last().innerText()).includes('another question'),
    );
  },

  'a session is renamed, archived and brought back': async () => {
    await page.locator('.part.auxiliarybar [aria-label*="Maximize"]').first().click();
    await choose('write notes.txt Hello', 'Rename...');
    await page.locator('.quick-input-widget input').first().fill('Notes');
    await page.keyboard.press('Enter');
    await sessionRows.filter({ hasText: 'Notes' }).first().waitFor();
    assert.equal((await client.state(await session())).title, 'Notes');
    await choose('Notes', 'Mark as Done');
    await until('it is archived', async () => ((await client.state(await session())).status & 64) !== 0);
  },

  'Start Over removes all turns': async () => {
    await page.locator('.agent-sessions-container').getByText('New Session').click();
    await send('write notes.txt Again', 'Prompt 1: write notes.txt Again');
    await press('write notes.txt Again', '.chat-restore-checkpoint-item .action-label');
    await requests.first().getByText('Discard Edits').click();
    await until('the window is empty', async () => (await requests.count()) === 0);
    await send('from the beginning', /Prompt \d+: from the beginning/);
    assert.deepEqual(await turns(), ['from the beginning']);
  },

  'the window is reloaded': async () => {
    await page.reload();
    // The window begins with the form for a new session.
    await sessionRows.filter({ hasText: 'write notes.txt Again' }).first().click();
    await chat.getByText('from the beginning').first().waitFor();
    await send('after the reload', /Prompt \d+: after the reload/);
    assert.deepEqual(await turns(), ['from the beginning', 'after the reload']);
  },

  'the host is killed and started again': async () => {
    const ended = once(host, 'exit');
    host.kill('SIGKILL');
    await ended;
    client.close();
    host = startHost();
    client = await connect();
    await until('the window reconnects', () => {
      const lines = readFileSync(wire, 'utf8').trimEnd().split('\n');
      return lines.some((line) => line.includes('"reconnect"') && !line.includes('"ping"'));
    });
    await send('after the end', /Prompt \d+: .*after the end/s);
    assert.deepEqual(await turns(), ['from the beginning', 'after the reload', 'after the end']);
  },

  // The form for new sessions of this window always sends `isolation: folder`; the Agents window, which code-server
  // does not contain, has the choice. Another client creates the session, and the window works in its tree.
  'a session in a worktree': async () => {
    const own = 'script:/5a0b2a1e-8c6f-4a57-9a54-5c1d2d3f4a5b';
    const config = { isolation: 'worktree', branch: 'main' };
    await client.request('createSession', {
      channel: own,
      provider: 'script',
      workingDirectories: [`file://${repo}`],
      config,
    });
    const { workingDirectories, defaultChat } = await client.state(own);
    const tree = new URL(workingDirectories[0]).pathname;
    assert.equal(path.dirname(tree), `${repo}.worktrees`);
    const message = { text: 'write tree.txt Grown', origin: { kind: 'user' } };
    client.dispatch(defaultChat, { type: 'chat/turnStarted', turnId: 'first', message });
    await until('the turn ends', async () => (await client.chat(own)).turns.length === 1);
    await open(tree);
    await page.locator('.explorer-folders-view').getByText('tree.txt').waitFor();
    await sessionRows.filter({ hasText: 'write tree.txt Grown' }).first().click();
    await send('write tree.txt Pruned', 'Prompt 2: write tree.txt Pruned');
    await chat.getByText('1 File', { exact: true }).waitFor();
    assert.equal(readFileSync(path.join(tree, 'tree.txt'), 'utf8'), 'Pruned\n');
    assert.throws(() => read('tree.txt'));
    assert.match(git('worktree', 'list'), new RegExp(path.basename(tree)));
  },
};

const failed = [];
let number = 0;
const wanted = Object.entries(steps).slice(0, Number(options.steps ?? Infinity));
for (const [name, run] of wanted) {
  number += 1;
  errors.length = 0;
  let why = '';
  try {
    await run();
    assert.deepEqual(errors, [], 'errors in the developer console');
  } catch (error) {
    why = error.message;
    failed.push(name);
  }
  const file = `${String(number).padStart(2, '0')}-${name.replaceAll(/[^a-z]+/giu, '-')}.png`;
  await page.screenshot({ path: path.join(options.output, file) });
  process.stdout.write(why ? `failed: ${name}: ${why}\n` : `passed: ${name}\n`);
}

const refused = readFileSync(wire, 'utf8')
  .split('\n')
  .filter((line) => line.includes('"from":"host"') && /"error":\{"code"|"rejectionReason"/.test(line));
for (const line of refused) {
  process.stdout.write(`refused: ${line.slice(0, 400)}\n`);
}

client.close();
await browser.close();
for (const child of started) {
  child.kill();
}
await sleep(500);
rmSync(root, { recursive: true, force: true });
process.stdout.write(`${number - failed.length} of ${number} steps\n`);
process.exit(failed.length === 0 ? 0 : 1);
