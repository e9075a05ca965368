//! One call: which endpoint, whose token, and only then its body.

use ostler_contract::http::{Method, Request, Response};
use ostler_contract::points::Collection;
use ostler_contract::{PluginHost, Slug, Thrown};

use crate::endpoint::{Endpoint, Target};
use crate::reply::Refusal;
use crate::token::{bearer, is_secret};
use crate::{ENDPOINTS, automation};

/// What the route needs.
pub(crate) struct Webhook {
    pub host: PluginHost,
    pub endpoints: Collection,
}

impl Webhook {
    /// Answers one request.
    pub async fn serve(&self, request: Request) -> Result<Response, Thrown> {
        match self.call(request).await? {
            Ok(response) => Ok(response),
            Err(refusal) => Ok(refusal.response()),
        }
    }

    async fn call(&self, request: Request) -> Result<Result<Response, Refusal>, Thrown> {
        let Some(id) = endpoint_id(request.uri().path()) else { return Ok(Err(Refusal::NoEndpoint)) };
        let Some(endpoint) = self.endpoint(&id).await? else { return Ok(Err(Refusal::NoEndpoint)) };
        if request.method() != Method::POST {
            return Ok(Err(Refusal::NotPost));
        }
        if !self.admits(&endpoint, &request).await {
            return Ok(Err(Refusal::NotAdmitted));
        }
        match &endpoint.target {
            Target::Automation => automation::call(&self.host, &endpoint, request).await,
            Target::Bot(target) => {
                let why = format!("{} cannot be talked to: this host has no bots", target.bot);
                Ok(Err(Refusal::NoBot(why)))
            }
        }
    }

    async fn endpoint(&self, id: &Slug) -> Result<Option<Endpoint>, Thrown> {
        let record = self.endpoints.get.call((id.to_string(),)).await?;
        Ok(record.and_then(|record| Endpoint::read(&record).ok()).map(|(endpoint, _)| endpoint))
    }

    /// Whether the request carries the endpoint's secret. Nothing of its body is read.
    async fn admits(&self, endpoint: &Endpoint, request: &Request) -> bool {
        let Some(token) = bearer(request.headers()) else { return false };
        match self.host.secret(endpoint.secret.clone(), None).await {
            Ok(secret) => is_secret(token, &secret),
            Err(why) => {
                let _ =
                    self.host.log(format!("endpoint {ENDPOINTS}/{} cannot be called: {why}", endpoint.id));
                false
            }
        }
    }
}

/// The one segment behind `/plugins/webhook/`.
fn endpoint_id(path: &str) -> Option<Slug> {
    Slug::parse(path.strip_prefix("/plugins/webhook/")?)
}
