//! A host of the cluster: the engine with the model of the database, on a computer of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{SinkExt as _, StreamExt as _};
use ostler_contract::cluster::ClusterHost;
use ostler_contract::host::EventData;
use ostler_contract::shared_runs::{EventRecords, EventRuns, FiredOnce, NewRecord, Once, RecordOf};
use ostler_contract::{JsonObject, PluginHost, Secret, Thrown, json};
use ostler_engine::{Connection, Front, Host, LinkDialer, LinkTransport, Principal};
use ostler_protocol::origins::WayIn;
use ostler_testkit::{MemoryHost, builds};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::database::Database;
use crate::machine::Machine;
use crate::member::{Member, TOKEN};
use crate::network::Network;
use crate::simulation::time_at;

/// What others reach of a running host.
#[derive(Clone)]
pub struct Face {
    /// The host.
    pub host: Arc<Host>,
    /// Its access to the database.
    pub member: Arc<Member>,
    /// The plugin whose events the simulation fires, as the one for webhooks does.
    builds: PluginHost,
}

/// The computer of a host, as others see it.
#[derive(Clone)]
pub struct Address {
    handle: Handle,
    face: Arc<Mutex<Option<Face>>>,
}

impl Address {
    /// Returns the host, if it has started.
    pub fn face(&self) -> Option<Face> {
        self.face.lock().clone()
    }
}

/// The computers on which hosts run, by their names.
#[derive(Clone, Default)]
pub struct Addresses(Arc<Mutex<BTreeMap<String, Address>>>);

impl std::fmt::Debug for Addresses {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Addresses")
    }
}

impl Addresses {
    /// Returns the address of a host whose process runs.
    pub fn get(&self, id: &str) -> Option<Address> {
        self.0.lock().get(id).cloned()
    }
}

/// A host and its computer.
pub struct SimulatedHost {
    id: String,
    machine: Machine,
    address: Address,
    addresses: Addresses,
    has_stopped: Arc<AtomicBool>,
}

/// A connection of a client.
pub struct Socket {
    /// Sends frames.
    pub outgoing: UnboundedSender<String>,
    /// Receives frames.
    pub incoming: UnboundedReceiver<Bytes>,
}

impl SimulatedHost {
    /// Starts a host; `run` is the number of this start, and `skew` what its clock shows too much.
    pub fn start(
        id: &str,
        run: u64,
        skew: Duration,
        (database, network, addresses): (&Database, &Network, &Addresses),
    ) -> Self {
        let machine = Machine::new();
        let address = Address { handle: machine.handle(), face: Arc::default() };
        addresses.0.lock().insert(id.to_owned(), address.clone());
        let (face, name, database) = (address.face.clone(), id.to_owned(), database.clone());
        let dialer =
            Arc::new(Dialer { from: id.to_owned(), network: network.clone(), to: addresses.clone() });
        machine.start(async move {
            let history = database.history().clone();
            let joined = Member::join(&database, &name, &format!("{name}#{run}"), true).await;
            let member = match joined {
                Ok(member) => member,
                Err(why) => return history.note(&name, format_args!("did not start: {why}")),
            };
            let (cluster, shared) = (member.cluster(), member.shared_runs());
            let transactions = member.run_transactions();
            let memory = MemoryHost::builder()
                .plugin(ostler_plugin_echo::plugin(), json!({}))
                .plugin(builds(), json!({}))
                .sessions(member.sessions())
                .automations(member.automations())
                .started(time_at(history.now() + skew))
                .own(move |host| host.join_cluster(cluster))
                .own(move |host| host.join_runs(transactions, Some(shared)))
                .links(dialer)
                .start()
                .await;
            member.cluster().set_url(format!("ws://{name}"));
            let builds = memory.plugin("builds").clone();
            *face.lock() = Some(Face { host: memory.host.clone(), member, builds });
            history.note(&name, "listens");
            std::future::pending::<()>().await;
            drop(memory);
        });
        Self {
            id: id.to_owned(),
            machine,
            address,
            addresses: addresses.clone(),
            has_stopped: Arc::default(),
        }
    }

    /// Returns the computer.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the host, if it has started.
    pub fn face(&self) -> Option<Face> {
        self.address.face()
    }

    /// Ends the process at once.
    pub fn crash(self) {
        self.addresses.0.lock().remove(&self.id);
        let face = self.address.face.lock().take();
        self.machine.drop_here(face);
    }

    /// Starts to drain, or takes sessions again.
    pub fn set_draining(&self, is_draining: bool) {
        if let Some(face) = self.face() {
            self.machine.start(async move { drop(face.host.set_draining(is_draining).await) });
        }
    }

    /// Stops in order. Its process ends after that.
    pub fn stop(&self) {
        if let Some(face) = self.face() {
            let has_stopped = self.has_stopped.clone();
            self.machine.start(async move {
                face.host.close().await;
                has_stopped.store(true, Ordering::Relaxed);
            });
        }
    }

    /// Returns whether it has stopped in order.
    pub fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Relaxed)
    }

    /// Ends the lease of another host.
    pub fn evict(&self, other: &str) {
        if let Some(face) = self.face() {
            let evicted = face.member.cluster().evict(other.to_owned());
            self.machine.start(async move { drop(evicted.await) });
        }
    }
}

/// Connects a client to a host, or returns nothing if it is not reached or does not run.
pub fn connect(network: &Network, addresses: &Addresses, client: &str, host: &str) -> Option<Socket> {
    let address = addresses.get(host)?;
    let front = address.face()?.host.front.clone();
    let (outgoing, received) = network.pipe::<String>(client, host)?;
    let (send, incoming) = network.pipe::<Bytes>(host, client)?;
    address.handle.spawn(serve(front, received, send));
    Some(Socket { outgoing, incoming })
}

/// Serves a connection of a client, as the server does with a WebSocket.
async fn serve(front: Arc<Front>, mut incoming: UnboundedReceiver<String>, outgoing: UnboundedSender<Bytes>) {
    let connection = Connection::open(&front, Principal::Anyone, WayIn::Client);
    drop(front);
    let (outbox, gone) = (connection.outbox.clone(), outgoing.clone());
    let mut writing = tokio::spawn(async move {
        let mut items = Vec::new();
        loop {
            let ended = outbox.drain(&mut items).await.is_some();
            for item in items.drain(..) {
                for frame in item.frames() {
                    if outgoing.send(frame.clone()).is_err() {
                        return;
                    }
                }
            }
            if ended {
                return;
            }
        }
    });
    loop {
        let text = tokio::select! {
            biased;
            _ = &mut writing => break,
            () = gone.closed() => break,
            text = incoming.recv() => text,
        };
        match text {
            Some(text) => connection.receive_frame(&text).await,
            None => break,
        }
    }
    connection.close();
}

/// Fires an event at a host, as a webhook call does; the answer is what the sender receives.
pub async fn fire(
    network: &Network,
    addresses: &Addresses,
    (client, host): (&str, &str),
    (id, n): (String, u64),
) -> Result<FiredOnce, Thrown> {
    let refused = || Thrown::new("the connection was refused or lost");
    if !network.travel(client, host).await {
        return Err(refused());
    }
    let address = addresses.get(host).ok_or_else(refused)?;
    let face = address.face().ok_or_else(refused)?;
    let (answer, answered) = oneshot::channel();
    address.handle.spawn(async move {
        let data: JsonObject = [("n".to_owned(), json!(n))].into_iter().collect();
        let record_in = |collection: &'static str| -> RecordOf {
            let id = id.clone();
            Arc::new(move |_: EventRuns<'_>| NewRecord {
                collection: collection.into(),
                record: [("id".to_owned(), json!(id))].into_iter().collect(),
            })
        };
        let once = Once { cause: format!("webhook:in:{n}"), record: record_in("deliveries") };
        let records = EventRecords { once: Some(once), log: Some(record_in("log")) };
        let fired = face.builds.fire_event(
            "build".into(),
            "done".into(),
            EventData::Fields(data.into()),
            None,
            records,
        );
        drop(face);
        let _ = answer.send(fired.await);
    });
    let fired = answered.await.map_err(|_| refused())?;
    match network.travel(host, client).await {
        true => fired,
        false => Err(refused()),
    }
}

/// Connects a host to others.
#[derive(Debug)]
struct Dialer {
    from: String,
    network: Network,
    to: Addresses,
}

impl LinkDialer for Dialer {
    fn dial(
        &self,
        host: ClusterHost,
        token: Secret<String>,
    ) -> BoxFuture<'static, Result<LinkTransport, String>> {
        let (from, network, to) = (self.from.clone(), self.network.clone(), self.to.clone());
        Box::pin(async move {
            let refused = || "refused".to_owned();
            if token.reveal() != TOKEN {
                return Err("another token".to_owned());
            }
            let address = to.get(&host.id).ok_or_else(refused)?;
            let front = address.face().ok_or_else(refused)?.host.front.clone();
            let (near_out, far_in) = network.pipe::<Bytes>(&from, &host.id).ok_or_else(refused)?;
            let (far_out, near_in) = network.pipe::<Bytes>(&host.id, &from).ok_or_else(refused)?;
            let far = transport(far_in, far_out);
            address.handle.spawn(async move { front.serve_link(far).await });
            Ok(transport(near_in, near_out))
        })
    }
}

fn transport(incoming: UnboundedReceiver<Bytes>, outgoing: UnboundedSender<Bytes>) -> LinkTransport {
    let incoming = futures::stream::unfold(incoming, |mut incoming| async move {
        let item = incoming.recv().await?;
        Some((item, incoming))
    });
    let outgoing = futures::sink::unfold(outgoing, |outgoing, text: String| async move {
        match outgoing.send(Bytes::from(text)) {
            Ok(()) => Ok(outgoing),
            Err(_) => Err("the connection was lost".to_owned()),
        }
    });
    LinkTransport { incoming: incoming.boxed(), outgoing: Box::pin(outgoing.sink_map_err(|why: String| why)) }
}
