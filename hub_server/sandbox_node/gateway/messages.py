"""The messages of `command_session.CommandSession`, as protobuf classes built from a table when this is imported.

One line a field: its number, name and type. `in x` puts it into the oneof x, `optional` tells absence from emptiness,
`repeated` makes it a list. The numbers are the wire's; a number that earlier clients used otherwise stays free.
The table stands in for generated code, which would tie this file to one release of the protobuf library.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "command_session"

MESSAGES: dict[str, list[str]] = {
    "CommandSpec": [
        "1 cmd string",
        "2 args string repeated",
        "3 envs map",  # string to string
        "4 cwd string optional",
        "5 user string optional",
    ],
    "PTY": ["1 size PTY.Size"],
    "PTY.Size": ["1 cols uint32", "2 rows uint32"],
    "CommandSessionSelector": ["1 pid uint32 in selector", "3 session_uuid string in selector"],
    "CommandInput": ["1 stdin bytes in input", "2 pty bytes in input"],
    "CommandSessionEvent": [
        "1 start CommandSessionEvent.StartEvent in event",
        "2 data CommandSessionEvent.DataEvent in event",
        "3 end CommandSessionEvent.EndEvent in event",
        "4 keepalive CommandSessionEvent.KeepAlive in event",
    ],
    "CommandSessionEvent.StartEvent": ["1 pid uint32"],
    "CommandSessionEvent.DataEvent": ["1 stdout bytes in output", "2 stderr bytes in output", "3 pty bytes in output"],
    "CommandSessionEvent.EndEvent": [
        "1 exit_code sint32",
        "2 exited bool",
        "3 status string",
        "4 error string optional",
    ],
    "CommandSessionEvent.KeepAlive": [],
    "CommandSessionInfo": ["1 command CommandSpec", "2 pid uint32", "4 session_uuid string optional"],
    "ListRequest": [],
    "ListResponse": ["1 sessions CommandSessionInfo repeated"],
    "ConnectRequest": ["1 session CommandSessionSelector"],
    "ConnectResponse": ["1 event CommandSessionEvent"],
    "StartRequest": [
        "1 command CommandSpec",
        "2 pty PTY",
        "4 stdin bool optional",
        "5 session_uuid string optional",
    ],
    "StartResponse": ["1 event CommandSessionEvent"],
    "UpdateRequest": ["1 session CommandSessionSelector", "2 pty PTY"],
    "UpdateResponse": [],
    "StreamInputRequest": [
        "1 start StreamInputRequest.StartEvent in event",
        "2 data StreamInputRequest.DataEvent in event",
        "3 keepalive StreamInputRequest.KeepAlive in event",
    ],
    "StreamInputRequest.StartEvent": ["1 session CommandSessionSelector"],
    # Clients of the earlier generation number the input 2.
    "StreamInputRequest.DataEvent": ["1 input CommandInput", "2 earlier_input CommandInput"],
    "StreamInputRequest.KeepAlive": [],
    "StreamInputResponse": [],
    "SendInputRequest": ["1 session CommandSessionSelector", "2 input CommandInput", "3 input_uuid string optional"],
    "SendInputResponse": [],
    "SendSignalRequest": ["1 session CommandSessionSelector", "2 signal Signal", "3 signal_uuid string optional"],
    "SendSignalResponse": [],
}
SIGNALS = {"SIGNAL_UNSPECIFIED": 0, "SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9}

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "uint32": _Field.TYPE_UINT32,
    "sint32": _Field.TYPE_SINT32,
}


def _add_field(message: Any, full_name: str, line: str) -> None:
    number, name, kind, *rest = line.split()
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if "repeated" in rest or kind == "map":
        field.label = _Field.LABEL_REPEATED
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind == "Signal":
        field.type, field.type_name = _Field.TYPE_ENUM, f".{PACKAGE}.Signal"
    elif kind == "map":
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{full_name}.{entry.name}"
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    if "in" in rest:
        group = rest[rest.index("in") + 1]
        names = [one.name for one in message.oneof_decl]
        if group not in names:
            message.oneof_decl.add(name=group)
            names.append(group)
        field.oneof_index = names.index(group)


def _add_presence(message: Any, lines: list[str]) -> None:
    # Proto3 says "optional" by a oneof of one field; these follow the real ones.
    for field, line in zip(message.field, lines, strict=True):
        if line.endswith(" optional"):
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _build() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=f"{PACKAGE}.proto", package=PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    for full_name, lines in MESSAGES.items():
        parent, _, name = full_name.rpartition(".")
        message = made[full_name] = (made[parent].nested_type if parent else file.message_type).add(name=name)
        for line in lines:
            _add_field(message, full_name, line)
        _add_presence(message, lines)
    signal = file.enum_type.add(name="Signal")
    for value_name, value in SIGNALS.items():
        signal.value.add(name=value_name, number=value)
    pool = descriptor_pool.DescriptorPool()  # of our own: a client in the same process has the same names
    pool.AddSerializedFile(file.SerializeToString())
    return {
        full_name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{full_name}"))
        for full_name in MESSAGES
    }


_CLASSES = _build()

CommandSpec = _CLASSES["CommandSpec"]
CommandSessionEvent = _CLASSES["CommandSessionEvent"]
CommandSessionInfo = _CLASSES["CommandSessionInfo"]
ListRequest, ListResponse = _CLASSES["ListRequest"], _CLASSES["ListResponse"]
ConnectRequest, ConnectResponse = _CLASSES["ConnectRequest"], _CLASSES["ConnectResponse"]
StartRequest, StartResponse = _CLASSES["StartRequest"], _CLASSES["StartResponse"]
UpdateRequest, UpdateResponse = _CLASSES["UpdateRequest"], _CLASSES["UpdateResponse"]
StreamInputRequest, StreamInputResponse = _CLASSES["StreamInputRequest"], _CLASSES["StreamInputResponse"]
SendInputRequest, SendInputResponse = _CLASSES["SendInputRequest"], _CLASSES["SendInputResponse"]
SendSignalRequest, SendSignalResponse = _CLASSES["SendSignalRequest"], _CLASSES["SendSignalResponse"]
