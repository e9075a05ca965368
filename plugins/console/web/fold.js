// How actions change the state of a channel. The states are those of the snapshots; an action that names something
// unknown changes nothing.

const upsert = (list, item, key) => {
  const at = list.findIndex((one) => one[key] === item[key]);
  if (at < 0) list.push(item);
  else list[at] = item;
};
const without = (list, key, value) => (list ?? []).filter((one) => one[key] !== value);

function part(state, action) {
  const turn = state.activeTurn?.id === action.turnId ? state.activeTurn : undefined;
  return turn?.responseParts.find((one) => one.id === action.partId);
}

/** The tool call of an action, in a turn that may have ended. */
function call(state, action) {
  const turns = [state.activeTurn, ...(state.turns ?? []).toReversed()];
  const turn = turns.find((one) => one?.id === action.turnId);
  const found = turn?.responseParts.find(
    (one) => one.kind === 'toolCall' && one.toolCall.toolCallId === action.toolCallId,
  );
  return found?.toolCall;
}

function end(state, action, how, more) {
  const turn = state.activeTurn;
  if (turn?.id !== action.turnId) return;
  for (const one of turn.responseParts) {
    const tool = one.toolCall;
    if (tool && !['completed', 'cancelled'].includes(tool.status))
      Object.assign(tool, { status: 'cancelled', reason: 'skipped' });
  }
  if (more) turn.responseParts.push(more);
  (state.turns ??= []).push({ ...turn, state: how, duration: action.duration });
  delete state.activeTurn;
}

const copied = (action, ...names) =>
  Object.fromEntries(names.filter((name) => action[name] !== undefined).map((name) => [name, action[name]]));

const folds = {
  'root/agentsChanged': (state, { agents }) => void (state.agents = agents),
  'root/activeSessionsChanged': (state, { activeSessions }) => void (state.activeSessions = activeSessions),
  'root/terminalsChanged': (state, { terminals }) => void (state.terminals = terminals),

  'session/ready': (state) => void (state.lifecycle = 'ready'),
  'session/creationFailed': (state, { error }) =>
    Object.assign(state, { lifecycle: 'failed', creationError: error }),
  'session/chatAdded': (state, { summary }) => upsert(state.chats, summary, 'resource'),
  'session/chatRemoved': (state, { chat }) => {
    state.chats = without(state.chats, 'resource', chat);
    if (state.defaultChat === chat) delete state.defaultChat;
  },
  'session/chatUpdated': (state, { chat, changes }) => {
    const found = state.chats.find((one) => one.resource === chat);
    if (found) Object.assign(found, changes);
  },
  'session/defaultChatChanged': (state, { defaultChat }) => void (state.defaultChat = defaultChat),
  'session/chatsReordered': (state, { chats }) => {
    const place = ({ resource }) => chats.indexOf(resource);
    state.chats = state.chats.toSorted((a, b) => place(a) - place(b));
  },
  'session/metaChanged': (state, { _meta }) => void (state._meta = _meta),
  'session/workingDirectorySet': (state, { directory }) => {
    state.workingDirectories = [...new Set([...(state.workingDirectories ?? []), directory])];
  },
  'session/workingDirectoryRemoved': (state, { directory }) => {
    state.workingDirectories = state.workingDirectories?.filter((one) => one !== directory);
  },
  'session/workingDirectoryReplaced': (state, { directory, replacement }) => {
    const replaced = state.workingDirectories?.map((one) => (one === directory ? replacement : one));
    state.workingDirectories = replaced && [...new Set(replaced)];
  },
  'session/titleChanged': (state, { title }) => void (state.title = title),
  'session/inputNeededSet': (state, { request }) => upsert((state.inputNeeded ??= []), request, 'id'),
  'session/inputNeededRemoved': (state, { id }) =>
    void (state.inputNeeded = without(state.inputNeeded, 'id', id)),
  'session/activityChanged': (state, { activity }) => void (state.activity = activity),
  'session/changesetsChanged': (state, { changesets }) => void (state.changesets = changesets),

  'chat/turnStarted': (state, action) => {
    state.activeTurn = {
      id: action.turnId,
      startedAt: action.startedAt,
      message: action.message,
      responseParts: [],
    };
    if (action.queuedMessageId) {
      state.queuedMessages = without(state.queuedMessages, 'id', action.queuedMessageId);
      if (state.steeringMessage?.id === action.queuedMessageId) delete state.steeringMessage;
    }
  },
  'chat/responsePart': (state, action) => {
    if (state.activeTurn?.id === action.turnId && action.part.kind !== 'error')
      state.activeTurn.responseParts.push(action.part);
  },
  'chat/delta': (state, action) => {
    const found = part(state, action);
    if (found?.kind === 'markdown') found.content += action.content;
  },
  'chat/reasoning': (state, action) => {
    const found = part(state, action);
    if (found?.kind === 'reasoning') found.content += action.content;
  },
  'chat/toolCallStart': (state, action) => {
    if (state.activeTurn?.id !== action.turnId) return;
    const toolCall = {
      status: 'streaming',
      ...copied(action, 'toolCallId', 'toolName', 'displayName', 'intention', 'contributor'),
    };
    state.activeTurn.responseParts.push({ kind: 'toolCall', toolCall });
  },
  'chat/toolCallDelta': (state, action) => {
    const found = call(state, action);
    if (found?.status !== 'streaming') return;
    found.partialInput = (found.partialInput ?? '') + (action.content ?? '');
    if (action.invocationMessage) found.invocationMessage = action.invocationMessage;
  },
  'chat/toolCallReady': (state, action) => {
    const found = call(state, action);
    if (!found || !['streaming', 'running', 'pending-confirmation'].includes(found.status)) return;
    Object.assign(
      found,
      copied(
        action,
        'invocationMessage',
        'toolInput',
        'confirmationTitle',
        'options',
        'edits',
        'editable',
        'confirmed',
        'intention',
      ),
      { status: action.confirmed ? 'running' : 'pending-confirmation' },
    );
  },
  'chat/toolCallConfirmed': (state, action) => {
    const found = call(state, action);
    if (found?.status !== 'pending-confirmation') return;
    Object.assign(found, copied(action, 'reason', 'reasonMessage'), {
      status: action.approved ? 'running' : 'cancelled',
    });
    if (action.editedToolInput && action.approved) found.toolInput = action.editedToolInput;
  },
  'chat/toolCallComplete': (state, action) => {
    const found = call(state, action);
    if (!found || ['completed', 'cancelled'].includes(found.status)) return;
    Object.assign(found, action.result, {
      status: action.requiresResultConfirmation ? 'pending-result-confirmation' : 'completed',
    });
  },
  'chat/toolCallAuthRequired': (state, action) => {
    const found = call(state, action);
    if (found?.status === 'running') Object.assign(found, { status: 'auth-required', auth: action.auth });
  },
  'chat/toolCallAuthResolved': (state, action) => {
    const found = call(state, action);
    if (found?.status === 'auth-required') found.status = 'running';
  },
  'chat/toolCallContentChanged': (state, action) => {
    const found = call(state, action);
    if (found) found.content = action.content;
  },
  'chat/turnComplete': (state, action) => end(state, action, 'complete'),
  'chat/turnCancelled': (state, action) => end(state, action, 'cancelled'),
  'chat/error': (state, action) => end(state, action, 'error', { kind: 'error', ...action.part }),
  'chat/turnResume': (state, { turnId }) => {
    const last = state.turns?.at(-1);
    if (last?.id !== turnId || state.activeTurn) return;
    state.turns.pop();
    state.activeTurn = { ...last, responseParts: last.responseParts.filter((one) => one.kind !== 'error') };
  },
  'chat/usage': (state, action) => {
    if (state.activeTurn?.id === action.turnId) state.activeTurn.usage = action.usage;
  },
  'chat/activityChanged': (state, { activity }) => void (state.activity = activity),
  'chat/inputRequested': (state, { request }) => {
    const parts = state.activeTurn?.responseParts;
    if (!parts) return;
    const found = parts.find((one) => one.kind === 'inputRequest' && one.request.id === request.id);
    if (found) found.request = request;
    else parts.push({ kind: 'inputRequest', request });
  },
  'chat/inputAnswerChanged': (state, action) => {
    const found = state.activeTurn?.responseParts.find((one) => one.request?.id === action.requestId);
    if (!found) return;
    found.request.answers = { ...found.request.answers, [action.questionId]: action.answer };
  },
  'chat/inputCompleted': (state, action) => {
    const found = state.activeTurn?.responseParts.find((one) => one.request?.id === action.requestId);
    if (!found) return;
    found.response = action.response;
    found.request.answers = { ...found.request.answers, ...action.answers };
  },
  'chat/pendingMessageSet': (state, { kind, id, message }) => {
    if (kind === 'steering') state.steeringMessage = { id, message };
    else upsert((state.queuedMessages ??= []), { id, message }, 'id');
  },
  'chat/pendingMessageRemoved': (state, { kind, id }) => {
    if (kind === 'steering') delete state.steeringMessage;
    else state.queuedMessages = without(state.queuedMessages, 'id', id);
  },
  'chat/queuedMessagesReordered': (state, { order }) => {
    const place = (one) => order.indexOf(one.id) + 1 || order.length + 1;
    state.queuedMessages = (state.queuedMessages ?? []).toSorted((a, b) => place(a) - place(b));
  },
  'chat/truncated': (state, { turnId }) => {
    const at = state.turns.findIndex((one) => one.id === turnId);
    state.turns.length = turnId ? at + 1 : 0;
    delete state.activeTurn;
  },
  'chat/turnsLoaded': (state, action) => {
    const known = new Set(state.turns.map((one) => one.id));
    state.turns.unshift(...action.turns.filter((one) => !known.has(one.id)));
    state.turnsNextCursor = action.turnsNextCursor ?? action.nextCursor;
  },

  'changeset/statusChanged': (state, { status, error }) => Object.assign(state, { status, error }),
  'changeset/fileSet': (state, { file }) => upsert(state.files, file, 'id'),
  'changeset/fileRemoved': (state, action) =>
    void (state.files = without(state.files, 'id', action.fileId ?? action.id)),
  'changeset/contentChanged': (state, action) => Object.assign(state, copied(action, 'files', 'operations')),
  'changeset/cleared': (state) => void (state.files = []),

  'terminal/data': (state, { data }) => {
    const last = state.content.at(-1);
    if (last?.type === 'command' && !last.isComplete) last.output += data;
    else if (last?.type === 'unclassified') last.value += data;
    else state.content.push({ type: 'unclassified', value: data });
  },
  'terminal/commandExecuted': (state, action) => {
    const started = copied(action, 'commandId', 'commandLine', 'timestamp');
    state.content.push({ type: 'command', output: '', isComplete: false, ...started });
  },
  'terminal/commandFinished': (state, action) => {
    const found = state.content.find((one) => one.commandId === action.commandId);
    if (found) Object.assign(found, copied(action, 'exitCode', 'durationMs'), { isComplete: true });
  },
  'terminal/exited': (state, { exitCode }) => void (state.lifecycle = { status: 'exited', exitCode }),
  'terminal/titleChanged': (state, { title }) => void (state.title = title),
  'terminal/cleared': (state) => void (state.content = []),

  'automation/set': (state, { automation }) => upsert(state.entries, automation, 'resource'),
  'automation/removed': (state, { resource }) =>
    void (state.entries = without(state.entries, 'resource', resource)),

  'automationRun/lifecycleChanged': (state, { lifecycle }) => void (state.lifecycle = lifecycle),
  'automationRun/sessionSet': (state, { session }) => {
    if (!state.sessions.includes(session)) state.sessions.push(session);
  },
  'automationRun/sessionRemoved': (state, { session }) => {
    state.sessions = state.sessions.filter((one) => one !== session);
    if (state.primarySession === session) delete state.primarySession;
  },
  'automationRun/primarySessionChanged': (state, { primarySession }) =>
    void (state.primarySession = primarySession),
};

/** Applies an action to a state, in place. */
export function fold(state, action) {
  folds[action.type]?.(state, action);
}
