//! Hearing what the process is told: to end, or to start again.

use tokio::sync::mpsc;

use crate::exit::Exit;
use crate::process::Signal;

/// Hears signals from the moment it is made, and whoever holds a [`Teller`].
pub struct Told {
    #[cfg(unix)]
    signals: Signals,
    inside: mpsc::UnboundedReceiver<Signal>,
    _teller: Teller,
}

/// Tells the daemon from inside.
#[derive(Debug, Clone)]
pub struct Teller(mpsc::UnboundedSender<Signal>);

impl Teller {
    /// Tells it.
    pub fn tell(&self, signal: Signal) {
        let _ = self.0.send(signal);
    }
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    /// Only a daemon that is detached or managed starts again; in the foreground both end it, as they end any program.
    again: Option<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)>,
}

#[cfg(unix)]
impl Signals {
    fn listen(restarts: bool) -> Result<Self, Exit> {
        use tokio::signal::unix::{SignalKind, signal};
        let hear =
            |kind| signal(kind).map_err(|error| Exit::machine(format!("cannot handle signals: {error}")));
        Ok(Self {
            terminate: hear(SignalKind::terminate())?,
            interrupt: hear(SignalKind::interrupt())?,
            again: match restarts {
                true => Some((hear(SignalKind::hangup())?, hear(SignalKind::user_defined2())?)),
                false => None,
            },
        })
    }

    async fn next(&mut self) -> Signal {
        let again = async {
            match &mut self.again {
                Some((gently, anyway)) => tokio::select! {
                    _ = gently.recv() => Signal::Restart,
                    _ = anyway.recv() => Signal::RestartAnyway,
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            signal = again => signal,
        }
    }
}

impl Told {
    /// Begins to listen; also for signals to start again, if `restarts`.
    ///
    /// # Errors
    /// Exit 1 where the system allows no handler.
    pub fn listen(restarts: bool) -> Result<(Self, Teller), Exit> {
        let (teller, inside) = mpsc::unbounded_channel();
        let teller = Teller(teller);
        #[cfg(not(unix))]
        let _ = restarts;
        let told = Self {
            #[cfg(unix)]
            signals: Signals::listen(restarts)?,
            inside,
            _teller: teller.clone(),
        };
        Ok((told, teller))
    }

    /// Resolves each time the process is told something.
    pub async fn next(&mut self) -> Signal {
        #[cfg(unix)]
        let outside = self.signals.next();
        #[cfg(not(unix))]
        let outside = async {
            let _ = tokio::signal::ctrl_c().await;
            Signal::Stop
        };
        tokio::select! {
            signal = outside => signal,
            Some(signal) = self.inside.recv() => signal,
        }
    }

    /// Resolves when the process is told to end.
    pub async fn stop(&mut self) {
        while self.next().await != Signal::Stop {}
    }
}

/// Waits until a command is told to end, and answers the exit code that a shell expects of it then. A signal that it was
/// started to ignore, as `nohup` and shells do for what runs in the background, is ignored.
pub async fn ending() -> u8 {
    #[cfg(unix)]
    {
        use tokio::signal::unix::SignalKind;
        tokio::select! {
            code = heard(SignalKind::interrupt()) => code,
            code = heard(SignalKind::terminate()) => code,
            code = heard(SignalKind::hangup()) => code,
        }
    }
    #[cfg(not(unix))]
    {
        let _ = tokio::signal::ctrl_c().await;
        130
    }
}

/// The same while a program of the command's has the terminal: what is typed to interrupt is for that program.
#[cfg(unix)]
pub async fn ending_in_foreground() -> u8 {
    use tokio::signal::unix::SignalKind;
    tokio::select! {
        code = heard(SignalKind::terminate()) => code,
        code = heard(SignalKind::hangup()) => code,
        code = typed() => code,
    }
}

/// Ignores what is typed to interrupt.
#[cfg(unix)]
async fn typed() -> u8 {
    use tokio::signal::unix::SignalKind;
    loop {
        tokio::select! {
            _ = heard(SignalKind::interrupt()) => {}
            _ = heard(SignalKind::quit()) => {}
        }
    }
}

/// Waits for a signal. It is not waited for where this process was started to ignore it, or cannot hear it.
#[cfg(unix)]
async fn heard(kind: tokio::signal::unix::SignalKind) -> u8 {
    let number = kind.as_raw_value();
    if ignored() & (1 << (number - 1)) != 0 {
        return std::future::pending().await;
    }
    match tokio::signal::unix::signal(kind) {
        Ok(mut signal) => {
            signal.recv().await;
            128 + u8::try_from(number).unwrap_or_default()
        }
        // Then the signal ends the process.
        Err(_) => std::future::pending().await,
    }
}

/// The signals that this process ignores, a bit each. Where the system does not tell, none.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
