import { trace, context } from '@opentelemetry/api';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import client from 'prom-client';
export default async () => {
  const ex = new InMemorySpanExporter();
  const p = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(ex)] });
  const t = p.getTracer('t');
  const sp = t.startSpan('a');
  sp.setAttribute('k', 1);
  sp.end();
  const r = new client.Registry();
  client.collectDefaultMetrics({ register: r });
  const h = new client.Histogram({ name: 'h', help: 'h', registers: [r], buckets: [1, 2] });
  h.observe(1.5);
  return [
    ex.getFinishedSpans().map((s) => [s.name, s.attributes]),
    await r.getSingleMetricAsString('h'),
    (await r.metrics()).includes('process_cpu_user_seconds_total'),
    (await r.metrics()).includes('nodejs_eventloop_lag_seconds'),
  ];
};
