import sinon from 'sinon';
export default async () => {
  const own = { f: (x) => x + 1 };
  const spy = sinon.spy(own, 'f');
  own.f(2);
  own.f(3);
  const stub = sinon.stub().onFirstCall().returns(1).onSecondCall().throws(new TypeError('t')).resolves(5);
  const said = [spy.callCount, spy.firstCall.args, spy.returned(4), stub()];
  try {
    stub();
  } catch (error) {
    said.push(error.name);
  }
  said.push(await stub());
  spy.restore();
  const clock = sinon.useFakeTimers({ now: 1000 });
  const times = [];
  setTimeout(() => times.push('once'), 100);
  setInterval(() => times.push(Date.now()), 50);
  clock.tick(120);
  said.push([...times], Date.now(), new Date().toISOString());
  const pending = new Promise((done) => setTimeout(() => done('later'), 1000));
  await clock.tickAsync(1000);
  said.push(await pending);
  clock.restore();
  sinon.assert.calledTwice(spy);
  return [...said, own.f(1)];
};
