import { Effect, Schedule, Stream, Option, pipe } from 'effect';
import * as R from 'ramda';
import { produce, enablePatches, produceWithPatches } from 'immer';
import { makeAutoObservable, autorun, computed } from 'mobx';
import { createMachine, createActor, assign, fromPromise, waitFor, setup } from 'xstate';
export default async () => {
  let tries = 0;
  const eff = await Effect.runPromise(
    pipe(
      Effect.tryPromise({
        try: async () => {
          if (++tries < 3) throw new Error('x');
          return tries;
        },
        catch: (e) => e,
      }),
      Effect.retry(Schedule.recurs(5)),
    ),
  );
  const st = await Effect.runPromise(
    Stream.runCollect(
      Stream.range(1, 5).pipe(
        Stream.map((n) => n * 2),
        Stream.filter((n) => n > 4),
      ),
    ),
  );
  const fail = await Effect.runPromiseExit(Effect.fail('no'));
  enablePatches();
  const [next, patches] = produceWithPatches({ a: { b: 1 }, m: new Map() }, (d) => {
    d.a.b = 2;
  });
  const store = makeAutoObservable({
    n: 1,
    get double() {
      return this.n * 2;
    },
    inc() {
      this.n++;
    },
  });
  const seen = [];
  autorun(() => seen.push(store.double));
  store.inc();
  const m = setup({ actors: { load: fromPromise(async () => 42) } }).createMachine({
    context: { v: 0 },
    initial: 'idle',
    states: {
      idle: { on: { GO: 'loading' } },
      loading: {
        invoke: {
          src: 'load',
          onDone: { target: 'done', actions: assign({ v: ({ event }) => event.output }) },
        },
      },
      done: { type: 'final' },
    },
  });
  const actor = createActor(m).start();
  actor.send({ type: 'GO' });
  const snap = await waitFor(actor, (s) => s.status === 'done');
  return [
    eff,
    [...st],
    fail._tag,
    R.groupBy((x) => (x % 2 ? 'odd' : 'even'), [1, 2, 3]),
    R.path(['a', 'b'], { a: { b: 3 } }),
    R.equals(new Map([[1, { a: 2 }]]), new Map([[1, { a: 2 }]])),
    next,
    patches,
    seen,
    snap.context,
    produce([3, 1, 2], (d) => {
      d.sort();
    }),
  ];
};
