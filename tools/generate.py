#!/usr/bin/python3
"""Turns an API specification (a folder such as api/opencl/) into C and documentation.

It reads the C prototypes and the order of the dispatch table from the API's own headers through
libclang, and everything else from the specification. It contains no name of any API.

    generate.py SPEC_DIR OUT_DIR          C sources for client and worker
    generate.py SPEC_DIR --docs DOCS_DIR  coverage table and message formats
"""
import argparse
import os
import re
import sys

import clang.cindex as ci
import yaml

SCALARS = {"object": ("struct dv_object_id", 4), "u32": ("uint32_t", 4), "i32": ("int32_t", 4), "u64": ("uint64_t", 8)}
HEADS = {"send": ("struct dv_record head", 8), "call": ("struct dv_call_head head", 24),
         "queue": ("struct dv_queue_head head", 40)}
WAIT_ARGS = ("num_events_in_wait_list", "event_wait_list", "event")


class SpecError(Exception):
    pass


# ---- reading -------------------------------------------------------------------------------

class Argument:
    def __init__(self, name, ctype, size):
        self.name, self.ctype, self.size = name, ctype, size


class Function:
    """One entry of the dispatch table: its prototype and its specification."""

    def __init__(self, name, result, args, spec):
        self.name, self.result, self.args, self.spec = name, result, args, spec

    @property
    def does(self):
        return self.spec["does"]

    def parameters(self):
        return ", ".join(declare(a.ctype, a.name) for a in self.args) or "void"


class Field:
    """A field of a message. `count` is 1 or the length of a fixed array."""

    def __init__(self, name, kind, count=1):
        self.name, self.kind, self.count = name, kind, count

    @property
    def size(self):
        return SCALARS[self.kind][1] * self.count


class Message:
    def __init__(self, name, style, fields, tail="", says="", record=False, function=None):
        self.name, self.style, self.tail, self.says = name, style, tail, says
        self.record, self.function = record, function
        # 8-byte fields first, so that the layout has no holes
        self.fields = sorted(fields, key=lambda f: SCALARS[f.kind][1] != 8)
        used = sum(f.size for f in self.fields)
        if used % 8:
            self.fields.append(Field("padding", "u32"))

    @property
    def struct(self):
        return "dvw_" + self.name

    @property
    def op(self):
        return "DVW_OP_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).upper()

    def size(self):
        return HEADS[self.style][1] + sum(f.size for f in self.fields)


def declare(ctype, name):
    """A C declaration; function pointers and arrays carry the name inside."""
    if "(*)" in ctype:
        return ctype.replace("(*)", "(*%s)" % name, 1)
    if ctype.endswith("]"):
        base, bracket = ctype.split("[", 1)
        return "%s%s[%s" % (base, name, bracket)
    return ctype + ("" if ctype.endswith("*") else " ") + name


def read_prototypes(spec, defines):
    """The dispatch table's members in order, each with result type and arguments."""
    source = "".join("#include <%s>\n" % h for h in spec["includes"] + [spec["header"]])
    index = ci.Index.create()
    unit = index.parse("table.c", args=["-x", "c"] + defines, unsaved_files=[("table.c", source)])
    errors = [d for d in unit.diagnostics if d.severity >= ci.Diagnostic.Error]
    if errors:
        raise SpecError("cannot read the headers: %s" % errors[0].spelling)
    typedefs, declarations, members = {}, {}, None
    for cursor in unit.cursor.get_children():
        if cursor.kind == ci.CursorKind.TYPEDEF_DECL:
            typedefs[cursor.spelling] = cursor
        elif cursor.kind == ci.CursorKind.FUNCTION_DECL:
            declarations[cursor.spelling] = cursor
        elif cursor.kind == ci.CursorKind.STRUCT_DECL and cursor.spelling == spec["table"]:
            members = [c for c in cursor.get_children() if c.kind == ci.CursorKind.FIELD_DECL]
    if not members:
        raise SpecError("no struct %s in %s" % (spec["table"], spec["header"]))
    table = []
    for member in members:
        name = member.spelling
        named = declarations.get(name) or typedefs.get(member.type.spelling)
        if named is None:  # the header has no prototype here (another system's API)
            table.append((name, None, None))
            continue
        if named.kind == ci.CursorKind.TYPEDEF_DECL:
            pointee = named.underlying_typedef_type.get_pointee()
            if pointee.get_canonical().kind != ci.TypeKind.FUNCTIONPROTO:
                table.append((name, None, None))  # only its place in the table is declared
                continue
            result = pointee.get_result().spelling
        else:
            result = named.result_type.spelling
        args = []
        for i, parm in enumerate(c for c in named.get_children()
                                 if c.kind == ci.CursorKind.PARM_DECL):
            args.append(Argument(parm.spelling or "argument_%d" % i, parm.type.spelling,
                                 parm.type.get_canonical().get_size()))
        table.append((name, result, args))
    return table


def read_spec(folder):
    with open(os.path.join(folder, "api.yaml")) as f:
        spec = yaml.safe_load(f)
    spec["functions"], spec["messages"] = {}, {}
    for name in spec["files"]:
        with open(os.path.join(folder, name + ".yaml")) as f:
            part = yaml.safe_load(f)
        for section in ("functions", "messages"):
            for key, value in (part.get(section) or {}).items():
                if key in spec[section]:
                    raise SpecError("%s is specified twice" % key)
                spec[section][key] = value
    return spec


class Api:
    def __init__(self, folder, defines):
        self.spec = read_spec(folder)
        self.kinds = self.spec["kinds"]
        self.functions, self.bare = [], []
        table = read_prototypes(self.spec, defines)
        unknown = set(self.spec["functions"]) - {name for name, _, _ in table}
        if unknown:
            raise SpecError("not in the dispatch table: %s" % ", ".join(sorted(unknown)))
        for name, result, args in table:
            if name not in self.spec["functions"]:
                raise SpecError("%s is not in the specification" % name)
            if args is None:
                if self.spec["functions"][name]["does"] != "absent":
                    raise SpecError("%s has no prototype but is not absent" % name)
                self.bare.append(name)
            self.functions.append(Function(name, result, args, self.spec["functions"][name]))
        self.messages = self.hand_messages() + [self.enqueue_message(f) for f in self.functions
                                                if f.does == "enqueue"]

    def hand_messages(self):
        found = []
        for name, m in self.spec["messages"].items():
            fields = []
            for field, kind in (m.get("fields") or {}).items():
                match = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", field)
                fields.append(Field(match[1], kind, int(match[2] or 1)))
            found.append(Message(name, m["style"], fields, m.get("tail", ""), m.get("says", ""),
                                 bool(m.get("record"))))
        return found

    def enqueue_message(self, function):
        fields, tail = [], []
        for a in self.plain_args(function):
            how = self.how(function, a)
            if "object" in how:
                fields.append(Field(a.name, "object"))
            elif "array" in how:
                fields.append(Field(a.name, "u64", how["array"]))
                if how.get("optional"):
                    fields.append(Field("has_" + a.name, "u32"))
            elif "bytes" in how:
                fields.append(Field(a.name + "_bytes", "u32"))
                tail.append(a.name)
            elif "objects" in how:
                tail.append("object ids of " + a.name)
            else:
                fields.append(Field(a.name, "u64" if a.size == 8 else "u32"))
        if len(tail) > 1:
            raise SpecError("%s has two tails" % function.name)
        if function.spec.get("submit") != "hand":
            for a, how in self.objects(function):
                if how.get("access") not in ("read", "write"):
                    raise SpecError("%s does not say whether its access to %s is read or write" %
                                    (function.name, a.name))
        return Message(function.name, "queue", fields, tail[0] if tail else "",
                       "the command of that name", function=function)

    def plain_args(self, function):
        """Arguments apart from the queue, the wait list and the event."""
        return [a for a in function.args[1:] if a.name not in WAIT_ARGS]

    def handles(self):
        return {k["type"] for k in self.kinds.values()}

    def how(self, function, argument):
        return (function.spec.get("args") or {}).get(argument.name) or {}

    def objects(self, function):
        """The arguments of a command that are objects, and how."""
        found = [(a, self.how(function, a)) for a in self.plain_args(function)]
        return [(a, how) for a, how in found if "object" in how or "objects" in how]

    def writes(self, function):
        """A bit for each kept object that a command writes, and whether it writes those of its list."""
        kept = [how for _, how in self.objects(function) if "object" in how]
        listed = [how for _, how in self.objects(function) if "objects" in how]
        mask = sum(1 << i for i, how in enumerate(kept) if how["access"] == "write")
        return mask, any(how["access"] == "write" for how in listed)


# ---- writing -------------------------------------------------------------------------------

NOTICE = "/* Generated from the API specification by tools/generate.py. Do not edit. */\n"


def write_wire_header(api):
    p = api.spec["prefix"]
    out = [NOTICE, "#ifndef DV_%s_WIRE_H\n#define DV_%s_WIRE_H\n\n" % (p.upper(), p.upper()),
           '#include <assert.h>\n#include <stdint.h>\n\n#include "src/wire/session/record.h"\n\n',
           "#define DV_ENTRY %s\n#define DV_BAD_VALUE %s\n#define DV_NO_MEMORY %s\n\n" %
           (api.spec["calling"], api.spec["errors"]["value"], api.spec["errors"]["memory"]),
           "enum dvw_op {\n    DVW_OP_PAD = 0, /* fills the ring's end */\n"]
    out += ["    %s = %d,\n" % (m.op, i + 1) for i, m in enumerate(api.messages)]
    out.append("    DVW_OP_COUNT = %d,\n};\n\n" % (len(api.messages) + 1))
    queries = [f for f in api.functions if f.spec.get("query")]
    out.append("/* Functions that a `query` message can name. */\nenum dvw_query_function {\n")
    out += ["    DVW_QUERY_%s = %d,\n" % (f.name, i + 1) for i, f in enumerate(queries)]
    out.append("};\n\n")
    for m in api.messages:
        out.append("/* %s%s */\nstruct %s {\n    %s;\n" %
                   (m.says, "; then: " + m.tail if m.tail else "", m.struct, HEADS[m.style][0]))
        for f in m.fields:
            out.append("    %s %s%s;\n" % (SCALARS[f.kind][0], f.name,
                                           "[%d]" % f.count if f.count > 1 else ""))
        out.append('};\nstatic_assert(sizeof(struct %s) == %d, "wire");\n\n' % (m.struct, m.size()))
    out.append("#endif\n")
    return "".join(out)


def write_client_header(api):
    out = [NOTICE, "#ifndef DV_CLIENT_ENTRIES_H\n#define DV_CLIENT_ENTRIES_H\n\n",
           '#include "%s_wire.h"\n' % api.spec["prefix"]]
    out += ["#include <%s>\n" % h for h in api.spec["includes"]]
    out.append("\n/* Written by hand in src/client/%s/. */\n" % api.spec["prefix"])
    for f in api.functions:
        if f.does == "hand":
            out.append("%s DV_ENTRY dvc_%s(%s);\n" % (f.result, f.name, f.parameters()))
    out.append("\n/* Generated. */\n")
    for f in api.functions:
        if f.does in ("enqueue", "retain", "release", "info"):
            out.append("%s DV_ENTRY dvc_%s(%s);\n" % (f.result, f.name, f.parameters()))
    out.append("\nextern const struct %s dvc_dispatch;\n"
               "/* The same, writing the call log. */\nextern const struct %s dvc_dispatch_logged;\n" %
               (api.spec["table"], api.spec["table"]))
    out.append("\n/* The function of that name in the dispatch table, or NULL. */\n"
               "void *dvc_function_by_name(const char *name);\n\n#endif\n")
    return "".join(out)


def client_enqueue(api, f):
    queue = f.args[0]
    m = next(x for x in api.messages if x.function is f)
    out = ["%s DV_ENTRY dvc_%s(%s)\n{\n" % (f.result, f.name, f.parameters())]
    out.append("    struct dvc_queue *queue_ = dvc_queue_of(%s);\n" % queue.name)
    out.append("    if (!queue_)\n        return %s;\n" % api.kinds["queue"]["invalid"])
    check_args, fill, tail, tail_bytes, before = ["queue_"], [], "NULL", "0", []
    for a in api.plain_args(f):
        how = api.how(f, a)
        if "object" in how:
            kind = how["object"]
            out.append("    struct %s *%s_ = dvc_%s_of(%s);\n" %
                       (api.kinds[kind]["struct"], a.name, kind, a.name))
            out.append("    if (!%s_)\n        return %s;\n" % (a.name, api.kinds[kind]["invalid"]))
            check_args.append(a.name + "_")
            fill.append("    message.%s = %s_->object.id;\n" % (a.name, a.name))
            continue
        check_args.append(a.name)
        if "array" in how:
            limit = how.get("count", how["array"])
            copy = ("    for (uint32_t i = 0; i < %s; i++)\n        message.%s[i] = %s[i];\n" %
                    (limit, a.name, a.name))
            if how.get("optional"):
                fill.append("    message.has_%s = %s != NULL;\n    if (%s)\n" %
                            (a.name, a.name, a.name) + re.sub("(?m)^    ", "        ", copy))
            else:
                fill.append(copy)
        elif "bytes" in how:
            fill.append("    message.%s_bytes = (uint32_t)(%s);\n" % (a.name, how["bytes"]))
            tail, tail_bytes = a.name, str(how["bytes"])
        elif "objects" in how:
            kind = api.kinds[how["objects"]]
            before.append("    DV_AUTO_FREE struct dv_object_id *ids = dvc_ids_of_%s(%s, %s);\n    if (!ids)\n"
                          "        return %s;\n" %
                          (how["objects"], how["count"], a.name, "DV_NO_MEMORY"))
            tail, tail_bytes = "ids", "sizeof(struct dv_object_id) * " + how["count"]
        else:
            fill.append("    message.%s = (%s)%s;\n" %
                        (a.name, "uint64_t" if a.size == 8 else "uint32_t", a.name))
    out.append("    int32_t error = dvc_check_waits(queue_->context, %s, %s);\n" % WAIT_ARGS[:2])
    out.append("    if (!error)\n        error = %s(%s);\n" % (f.spec["check"], ", ".join(check_args)))
    out.append("    if (error)\n        return error;\n")
    out += before
    out.append("    struct %s message;\n    memset(&message, 0, sizeof message);\n" % m.struct)
    out += fill
    out.append("    return dvc_enqueue(queue_, %s, &message.head, sizeof message, %s, %s,\n"
               "                      %s, %s, %s, %s);\n}\n\n" %
               ((m.op, tail, tail_bytes, f.spec["command"]) + WAIT_ARGS))
    return "".join(out)


def client_reference(api, f):
    kind = f.spec["object"]
    k = api.kinds[kind]
    return ("%s DV_ENTRY dvc_%s(%s)\n{\n    struct %s *o = dvc_%s_of(%s);\n    if (!o)\n"
            "        return %s;\n    return dvc_%s_%s(o);\n}\n\n" %
            (f.result, f.name, f.parameters(), k["struct"], kind, f.args[0].name, k["invalid"], kind,
             f.does))


def client_info(api, f):
    kind = f.spec["object"]
    k = api.kinds[kind]
    out = ["%s DV_ENTRY dvc_%s(%s)\n{\n" % (f.result, f.name, f.parameters()),
           "    struct %s *o = dvc_%s_of(%s);\n    if (!o)\n        return %s;\n" %
           (k["struct"], kind, f.args[0].name, k["invalid"])]
    if f.spec.get("before"):
        out.append("    int32_t error = %s(o);\n    if (error)\n        return error;\n" %
                   f.spec["before"])
    param, size, value, ret = (a.name for a in f.args[1:5])
    where = "%s, %s, %s" % (size, value, ret)
    out.append("    switch (%s) {\n" % param)
    for name, how in f.spec["params"].items():
        out.append("    case %s:" % name)
        if "error" in how:
            out.append("\n        return %s;\n" % how["error"])
        elif "text" in how:
            out.append("\n        return dvc_info_text(%s, %s);\n" % (how["text"], where))
        elif "bytes" in how:
            out.append("\n        return dvc_info_bytes(%s, %s, %s);\n" %
                       (how["bytes"], how["size"], where))
        else:
            out.append(" {\n        %s = %s;\n        return dvc_info_bytes(&answer, sizeof answer, %s);"
                       "\n    }\n" % (declare(how["type"], "answer"), how["value"], where))
    out.append("    default:\n        return %s;\n    }\n}\n\n" % "DV_BAD_VALUE")
    return "".join(out)


def client_absent(api, f):
    if f.result == "void":
        return "static void DV_ENTRY absent_%s(%s)\n{\n}\n\n" % (f.name, f.parameters())
    if f.result == api.spec["status"]:
        return ("static %s DV_ENTRY absent_%s(%s)\n{\n    return %s;\n}\n\n" %
                (f.result, f.name, f.parameters(), api.spec["absent"]))
    error = next((a.name for a in f.args if a.name == "errcode_ret"), None)
    tell = "    if (%s)\n        *%s = %s;\n" % (error, error, api.spec["absent"]) if error else ""
    return ("static %s DV_ENTRY absent_%s(%s)\n{\n%s    return NULL;\n}\n\n" %
            (f.result, f.name, f.parameters(), tell))


def target(api, f):
    if f.name in api.bare:
        return "(void *)absent_without_prototype"
    return ("absent_" if f.does == "absent" else "dvc_") + f.name


def client_logged(api, f):
    """The same entry, which also writes a line to the call log."""
    formats, values = [], []
    for a in f.args:
        if a.ctype.endswith("]") or "*" in a.ctype or a.ctype in api.handles():
            formats.append("%s=%%p" % a.name)
            values.append("(void *)(uintptr_t)%s" % a.name)
        else:
            formats.append("%s=%%lld" % a.name)
            values.append("(long long)%s" % a.name)
    call = "%s(%s)" % (target(api, f), ", ".join(a.name for a in f.args))
    line = "%s(%s)" % (f.name, ", ".join(formats))
    given = "".join(", " + v for v in values)
    if f.result == "void":
        body = "    %s;\n    dvc_log_call(\"%s\"%s);\n" % (call, line, given)
    else:
        shape, cast = ("%d", "(int)") if f.result == api.spec["status"] else ("%p", "(void *)(uintptr_t)")
        body = ("    %s = %s;\n    dvc_log_call(\"%s = %s\"%s, %sresult);\n    return result;\n" %
                (declare(f.result, "result"), call, line, shape, given, cast))
    return "static %s DV_ENTRY logged_%s(%s)\n{\n%s}\n\n" % (f.result, f.name, f.parameters(), body)


def write_client_source(api):
    out = [NOTICE, '#include <string.h>\n\n#include "src/base/cleanup.h"\n',
           '#include "src/client/%s/enqueue.h"\n\n' % api.spec["prefix"]]
    writers = {"enqueue": client_enqueue, "retain": client_reference, "release": client_reference,
               "info": client_info, "absent": client_absent}
    for f in api.functions:
        if f.does in writers and f.name not in api.bare:
            out.append(writers[f.does](api, f))
    if api.bare:
        out.append("/* For entries without a prototype in this system's headers. */\n"
                   "static %s DV_ENTRY absent_without_prototype(void)\n{\n    return %s;\n}\n\n"
                   % (api.spec["status"], api.spec["absent"]))
    for f in api.functions:
        if f.name not in api.bare:
            out.append(client_logged(api, f))
    out.append("const struct %s dvc_dispatch = {\n" % api.spec["table"])
    for f in api.functions:
        out.append("    .%s = %s,\n" % (f.name, target(api, f)))
    out.append("};\n\nconst struct %s dvc_dispatch_logged = {\n" % api.spec["table"])
    for f in api.functions:
        out.append("    .%s = %s,\n" %
                   (f.name, target(api, f) if f.name in api.bare else "logged_" + f.name))
    out.append("};\n\nvoid *dvc_function_by_name(const char *name)\n{\n    static const struct {\n"
               "        const char *name;\n        size_t offset;\n    } table[] = {\n")
    for f in api.functions:
        if f.does != "absent":
            out.append("        {\"%s\", offsetof(struct %s, %s)},\n" % (f.name, api.spec["table"], f.name))
    out.append("    };\n    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)\n"
               "        if (strcmp(name, table[i].name) == 0)\n"
               "            return *(void *const *)((const char *)&dvc_dispatch + table[i].offset);\n"
               "    return NULL;\n}\n")
    return "".join(out)


def write_worker_header(api):
    out = [NOTICE, "#ifndef DV_WORKER_DISPATCH_H\n#define DV_WORKER_DISPATCH_H\n\n",
           '#include "%s_wire.h"\n\nstruct dvk_worker;\nstruct dvk_command;\n\n' % api.spec["prefix"],
           "/* Written by hand in src/worker/%s/: one function a message. `tail` follows the\n"
           " * fixed part; it is a private copy. */\n" % api.spec["prefix"]]
    for m in api.messages:
        if m.function is None and m.style != "queue":
            result = "void" if m.style == "send" else "int32_t"
            out.append("%s dvk_on_%s(struct dvk_worker *w, const struct %s *m, const uint8_t *tail,\n"
                       "        size_t tail_bytes%s);\n" %
                       (result, m.name, m.struct,
                        ", struct dvk_reply *reply" if m.style == "call" else ""))
        elif m.function is None or m.function.spec.get("submit") == "hand":
            out.append("int32_t dvk_resolve_%s(struct dvk_worker *w, struct dvk_command *c);\n"
                       "int32_t dvk_submit_%s(struct dvk_worker *w, struct dvk_command *c);\n" %
                       (m.name, m.name))
    out.append("\n/* One entry of the table of messages. */\nstruct dvk_message_info {\n"
               "    const char *name;\n    uint32_t bytes; /* of the fixed part */\n"
               "    uint32_t style; /* enum dvk_style */\n"
               "    uint32_t writes; /* a bit for each object kept for the command that it writes */\n"
               "    uint32_t writes_list; /* 1: those of its list */\n"
               "    void (*send)(struct dvk_worker *, const void *, const uint8_t *, size_t);\n"
               "    int32_t (*call)(struct dvk_worker *, const void *, const uint8_t *, size_t,\n"
               "                    struct dvk_reply *);\n"
               "    int32_t (*resolve)(struct dvk_worker *, struct dvk_command *);\n"
               "    int32_t (*submit)(struct dvk_worker *, struct dvk_command *);\n};\n"
               "extern const struct dvk_message_info dvk_messages[DVW_OP_COUNT];\n\n"
               "int32_t dvk_query(struct dvk_worker *w, const struct dvw_query *m, const uint8_t *input,\n"
               "                  size_t capacity, void *value, size_t *bytes);\n\n#endif\n")
    return "".join(out)


def worker_enqueue(api, m):
    f = m.function
    out = ["static int32_t resolve_%s(struct dvk_worker *w, struct dvk_command *c)\n{\n"
           "    const struct %s *m = (const void *)c->record;\n    (void)m;\n" % (f.name, m.struct)]
    n = 0
    call_args, prepare = [], []
    for a in api.plain_args(f):
        how = api.how(f, a)
        if "object" in how:
            k = api.kinds[how["object"]]
            out.append("    if (!dvk_command_keep_%s(w, c, %d, m->%s))\n        return %s;\n" %
                       (how["object"], n, a.name, k["invalid"]))
            call_args.append("dvk_command_%s(c, %d)" % (how["object"], n))
            n += 1
        elif "objects" in how:
            k = api.kinds[how["objects"]]
            out.append("    if (m->%s > dvk_command_tail_bytes(c, sizeof *m) / sizeof(uint32_t))\n"
                       "        return DV_BAD_VALUE;\n" % how["count"])
            out.append("    if (!dvk_command_keep_%s_list(w, c, (const struct dv_object_id *)(m + 1), m->%s))\n"
                       "        return %s;\n" % (how["objects"], how["count"], k["invalid"]))
            prepare.append("    DV_AUTO_FREE %s *objects = dvk_command_%s_list(c);\n    if (!objects)\n"
                           "        return DV_NO_MEMORY;\n" % (k["type"], how["objects"]))
            call_args.append("objects")
        elif "array" in how:
            prepare.append("    const size_t %s[3] = {m->%s[0], m->%s[1], m->%s[2]};\n" %
                           ((a.name,) * 4))
            call_args.append(("m->has_%s ? %s : NULL" % (a.name, a.name)) if how.get("optional")
                             else a.name)
        elif "bytes" in how:
            out.append("    if (m->%s_bytes > dvk_command_tail_bytes(c, sizeof *m))\n"
                       "        return DV_BAD_VALUE;\n" % a.name)
            if isinstance(how["bytes"], int):
                out.append("    if (m->%s_bytes != %d)\n        return DV_BAD_VALUE;\n" %
                           (a.name, how["bytes"]))
            else:
                out.append("    if (m->%s_bytes != m->%s)\n        return DV_BAD_VALUE;\n" %
                           (a.name, how["bytes"]))
            call_args.append("m + 1")
        else:
            call_args.append("(%s)m->%s" % (a.ctype, a.name))
    out.append("    return 0;\n}\n\n")
    if f.spec.get("submit") == "hand":
        return ""
    out.append("static int32_t submit_%s(struct dvk_worker *w, struct dvk_command *c)\n{\n"
               "    const struct %s *m = (const void *)c->record;\n    (void)m;\n    (void)w;\n" %
               (f.name, m.struct))
    out += prepare
    out.append("    return %s(dvk_command_queue(c), %s, c->wait_count, c->waits,\n"
               "        dvk_command_event(c));\n}\n\n" % (f.name, ", ".join(call_args)))
    return "".join(out)


def write_worker_source(api):
    p = api.spec["prefix"]
    out = [NOTICE, '#include "src/base/cleanup.h"\n#include "src/worker/%s/executor.h"\n\n' % p]
    for m in api.messages:
        if m.function:
            out.append(worker_enqueue(api, m))
        elif m.style == "send":
            out.append("static void send_%s(struct dvk_worker *w, const void *m, const uint8_t *tail,"
                       " size_t bytes)\n{\n    dvk_on_%s(w, m, tail, bytes);\n}\n\n" % (m.name, m.name))
        elif m.style == "call":
            out.append("static int32_t call_%s(struct dvk_worker *w, const void *m, const uint8_t *tail,"
                       " size_t bytes,\n    struct dvk_reply *reply)\n{\n"
                       "    return dvk_on_%s(w, m, tail, bytes, reply);\n}\n\n" % (m.name, m.name))
    out.append("const struct dvk_message_info dvk_messages[DVW_OP_COUNT] = {\n")
    for m in api.messages:
        by_hand = m.function is None or m.function.spec.get("submit") == "hand"
        if m.style == "queue":
            pre = "dvk_" if by_hand else ""
            how = ".resolve = %sresolve_%s, .submit = %ssubmit_%s" % (pre, m.name, pre, m.name)
            if not by_hand:
                how = ".writes = %d, .writes_list = %d, " % api.writes(m.function) + how
        else:
            how = ".%s = %s_%s" % (m.style, m.style, m.name)
        out.append("    [%s] = {\"%s\", sizeof(struct %s), DVK_STYLE_%s, %s},\n" %
                   (m.op, m.name, m.struct, m.style.upper(), how))
    out.append("};\n\nint32_t dvk_query(struct dvk_worker *w, const struct dvw_query *m, const uint8_t *input,\n"
               "                  size_t capacity, void *value, size_t *bytes)\n{\n"
               "    switch (m->function) {\n")
    for f in api.functions:
        q = f.spec.get("query")
        if not q or not q["params"]:
            continue
        kind = api.kinds[q["object"]]
        out.append("    case DVW_QUERY_%s: {\n        struct %s *o = dvk_find_%s(w, m->object);\n"
                   "        if (!o)\n            return %s;\n" %
                   (f.name, kind["worker"], q["object"], kind["invalid"]))
        device = ""
        if q.get("device"):
            out.append("        struct dvk_device *d = dvk_find_device(w, m->device);\n"
                       "        if (!d && m->device.value)\n            return %s;\n" %
                       api.kinds["device"]["invalid"])
            device = "d ? d->vendor : NULL, "
        out.append("        switch (m->param) {\n")
        out += ["        case %s:\n" % name for name in q["params"]]
        given = "m->input_bytes, m->input_bytes ? input : NULL, " if q.get("input") else ""
        out.append("            return %s(o->vendor, %sm->param, %scapacity, value, bytes);\n"
                   "        default:\n            return DV_BAD_VALUE;\n        }\n    }\n" %
                   (f.name, device, given))
    out.append("    default:\n        return dvk_query_by_hand(w, m, input, capacity, value, bytes);\n"
               "    }\n}\n")
    return "".join(out)


def write_coverage(api):
    names = {"hand": "by hand", "absent": "absent", "enqueue": "generated", "retain": "generated",
             "release": "generated", "info": "generated"}
    counts = {}
    rows = []
    for f in api.functions:
        how = names[f.does]
        counts[how] = counts.get(how, 0) + 1
        waits = f.spec.get("waits", False)
        waits = {True: "yes", False: "no", "first": "first time"}.get(waits, waits)
        if f.does == "absent":
            waits = "-"
        notes = f.spec.get("notes", "")
        if f.does == "absent" and not notes:
            raise SpecError("%s is absent without a reason" % f.name)
        rows.append("| `%s` | %s | %s | %s |\n" % (f.name, how, waits, notes))
    total = ", ".join("%d %s" % (n, how) for how, n in sorted(counts.items()))
    return ("# Coverage of the dispatch table\n\nGenerated by `tools/generate.py` from `api/%s/`; do not "
            "edit. %d entries: %s.\n\n\"Waits\" says whether the call waits for the worker.\n\n"
            "| function | how | waits | notes |\n|---|---|---|---|\n%s" %
            (api.spec["prefix"], len(api.functions), total, "".join(rows)))


def write_wire_doc(api):
    out = ["# Messages of the command ring\n\nGenerated by `tools/generate.py` from `api/%s/`; do not "
           "edit. [wire.md](wire.md) describes records and the three heads. All numbers are in "
           "host byte order; offsets are in bytes from the record's start.\n\n" % api.spec["prefix"]]
    for i, m in enumerate(api.messages):
        out.append("## %d: %s (%s%s)\n\n%s.\n\n| offset | bytes | field |\n|---|---|---|\n"
                   "| 0 | %d | head |\n" %
                   (i + 1, m.name, m.style, ", kept as a creation record" if m.record else "",
                    (m.says[:1].upper() + m.says[1:]), HEADS[m.style][1]))
        offset = HEADS[m.style][1]
        for f in m.fields:
            out.append("| %d | %d | %s%s |\n" % (offset, f.size, f.name,
                                                 "[%d]" % f.count if f.count > 1 else ""))
            offset += f.size
        if m.tail:
            out.append("| %d | | %s |\n" % (offset, m.tail))
        out.append("\n")
    return "".join(out)


def save(path, text):
    try:
        with open(path) as f:
            if f.read() == text:
                return
    except OSError:
        pass
    with open(path, "w") as f:
        f.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("spec")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--docs", metavar="DIR")
    parser.add_argument("-D", dest="defines", action="append", default=[])
    options = parser.parse_args()
    try:
        api = Api(options.spec, ["-D" + d for d in options.defines])
        prefix = api.spec["prefix"]
        if options.out:
            save(os.path.join(options.out, prefix + "_wire.h"), write_wire_header(api))
            save(os.path.join(options.out, prefix + "_client.h"), write_client_header(api))
            save(os.path.join(options.out, prefix + "_client.c"), write_client_source(api))
            save(os.path.join(options.out, prefix + "_worker.h"), write_worker_header(api))
            save(os.path.join(options.out, prefix + "_worker.c"), write_worker_source(api))
        if options.docs:
            save(os.path.join(options.docs, prefix + "-coverage.md"), write_coverage(api))
            save(os.path.join(options.docs, prefix + "-wire.md"), write_wire_doc(api))
    except SpecError as error:
        sys.exit("generate.py: %s: %s" % (options.spec, error))


if __name__ == "__main__":
    main()
