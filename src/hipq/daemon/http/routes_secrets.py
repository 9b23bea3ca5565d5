"""The routes of secrets, which are written and never read, and of the keys that calls of URLs are signed with."""

from __future__ import annotations

from typing import Any, Final

from hipq.daemon.http.job_json import MOMENT, TEXT, array, typed
from hipq.daemon.http.reply import HttpError, Reply, reply
from hipq.daemon.http.routes_table import Accepts, Call, Gives, Route
from hipq.errors import Invalid
from hipq.sandbox.policy import MOST_VALUE


async def list_secrets(call: Call) -> Reply:
    return reply({"secrets": await call.blocking(call.api.service.secrets.names, call.tenant)})


async def set_secret(call: Call) -> Reply:
    value = await call.body.read()
    if len(value) > MOST_VALUE:
        raise Invalid(f"a secret may have {MOST_VALUE:,} bytes, and this one has more")
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise Invalid("a secret is text in UTF-8: write other bytes in base64") from None
    return reply(await call.blocking(call.api.service.secrets.set, call.tenant, call.params["secret"], text))


async def delete_secret(call: Call) -> Reply:
    await _dropped(call, call.api.service.secrets.delete, call.params["secret"])
    return reply({"deleted": call.params["secret"]})


async def list_signing_keys(call: Call) -> Reply:
    return reply({"keys": await call.blocking(call.api.service.secrets.signing_keys, call.tenant)})


async def new_signing_key(call: Call) -> Reply:
    return reply(await call.blocking(call.api.service.secrets.new_signing_key, call.tenant))


async def drop_signing_key(call: Call) -> Reply:
    await _dropped(call, call.api.service.secrets.drop_signing_key, call.params["signing_key"])
    return reply({"deleted": call.params["signing_key"]})


async def _dropped(call: Call, drop: Any, name: str) -> None:
    try:
        await call.blocking(drop, call.tenant, name)
    except LookupError as error:
        raise HttpError(404, str(error)) from None


_SECRET: Final = typed({"name": TEXT, "made": MOMENT})
_KEY: Final = {"id": TEXT, "made": MOMENT}
_GONE: Final = (Gives(200, "It is deleted.", typed({"deleted": TEXT})),)
_VALUE: Final = Accepts({"text/plain": {"type": "string", "minLength": 8, "maxLength": MOST_VALUE}})
_SECRETS: Final = "/v1/{client}/secrets"
_KEYS: Final = "/v1/{client}/signing-keys"

ROUTES: Final = (
    Route("GET", _SECRETS, list_secrets, "List the names of a tenant's secrets. Never their values.",
          (Gives(200, "The secrets.", typed({"secrets": array(_SECRET)})),), tag="handlers"),
    Route("PUT", _SECRETS + "/{secret}", set_secret,
          "Set a secret. The body is its value, which handlers that name it have as an environment variable.",
          (Gives(200, "It is set.", _SECRET),), _VALUE, tag="handlers"),
    Route("DELETE", _SECRETS + "/{secret}", delete_secret,
          "Delete a secret. Jobs of handlers that name it are retried until they time out.", _GONE, tag="handlers"),
    Route("GET", _KEYS, list_signing_keys, "List the keys that the calls of a tenant's URLs are signed with.",
          (Gives(200, "The keys, the newest last.", typed({"keys": array(typed(_KEY))})),), tag="handlers"),
    Route("POST", _KEYS, new_signing_key,
          "Make a key that signs the calls of a tenant's URLs. It is in the reply, and not to be had again. It signs "
          "beside the one before; an older one is dropped.",
          (Gives(200, "The key.", typed({**_KEY, "secret": TEXT})),), tag="handlers"),
    Route("DELETE", _KEYS + "/{signing_key}", drop_signing_key, "Drop a key: it signs no more calls.", _GONE,
          tag="handlers"),
)  # fmt: skip
