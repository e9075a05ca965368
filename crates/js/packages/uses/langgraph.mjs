import { Annotation, END, MemorySaver, START, StateGraph } from '@langchain/langgraph';
export default async () => {
  const State = Annotation.Root({ n: Annotation({ reducer: (a, b) => a + b, default: () => 0 }) });
  const graph = new StateGraph(State)
    .addNode('one', async () => ({ n: 1 }))
    .addNode('ten', async ({ n }) => ({ n: n * 10 }))
    .addEdge(START, 'one')
    .addEdge('one', 'ten')
    .addConditionalEdges('ten', ({ n }) => (n > 100 ? END : 'one'))
    .compile({ checkpointer: new MemorySaver() });
  const thread = { configurable: { thread_id: '1' } };
  const events = [];
  for await (const event of await graph.stream({ n: 0 }, thread)) events.push(event);
  return [events, (await graph.getState(thread)).values];
};
