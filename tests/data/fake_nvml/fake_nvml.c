/*
 * A small libnvidia-ml.so.1 for tests: answers the calls the agent makes through pynvml from a text file.
 *
 * The file is named by FAKE_NVML_STATE and read again at every call, so a test changes the machine while the agent
 * runs. One "key value" a line; "!N" as a value makes the call return error N; a missing key is "not supported" (3).
 * A missing symbol (temperature by nvmlDeviceGetTemperatureV, for one) is an old driver, on purpose.
 *
 *   init 9                       nvmlInitWithFlags returns 9 (driver not loaded); missing: 0
 *   hang 30                      nvmlDeviceGetCount_v2 sleeps that many seconds first
 *   count 2                      number of cards; each time it is asked for adds a byte to the file STATE.looks
 *   0.open !15                   the handle of card 0 can't be opened
 *   0.uuid GPU-..                likewise name, serial, pci, total, reserved, used, temperature, utilisation,
 *                                memory_busy, power, slowdown (a bit mask), recovery (an action), ecc_volatile,
 *                                ecc_corrected, ecc_aggregate, remap_pending, remap_failure (these two 0 or 1),
 *                                remap_correctable, remap_uncorrectable
 *   0.slowdown_old 64            the same mask by the older name of the call
 *   0.tensor 400                 a counter of busy milliseconds; GPM tells its growth between two samples, in percent
 *   0.nvlink_errors 12           all error counters of all ports;  0.port3_errors 4  those of one port (NVLink 5)
 *   0.processes 41:1048576,42:-  pid:bytes, "-" where the driver can't tell; also 0.mps and 0.graphics
 *   0.mig 1                      MIG mode; then 0.mig0.uuid, 0.mig0.name, 0.mig0.total, 0.mig0.reserved, 0.mig0.used
 *   0.ports 18                   NVLink ports; 0.port3 is the peer's PCI address, "switch" or "down"
 *   0.port_mbytes 26562          speed of a port in MB/s
 *   topology.0.1 20              nearest common ancestor;  p2p.0.1 0  status of NVLink between peers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9 };
enum { MIGS = 8, MIG_BASE = 1000 };

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } Process;
typedef struct { unsigned id; int result; double value; char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; unsigned long long *before, *after; GpmMetric metrics[1]; } GpmMetrics;
typedef struct { unsigned field, scope; long long at, latency; unsigned type, result; unsigned long long value; } Field;

/* The value of a key, or "not supported", or the error that the value names. */
static int get(const char *key, char *out, size_t size) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024];
    int found = UNSUPPORTED;
    if (!file) return NO_DRIVER;
    while (found == UNSUPPORTED && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ' ');
        if (!value) continue;
        *value++ = 0;
        value[strcspn(value, "\n")] = 0;
        if (strcmp(line, key)) continue;
        if (*value == '!') found = atoi(value + 1);
        else { snprintf(out, size, "%s", value); found = OK; }
    }
    fclose(file);
    return found;
}

static int get_number(const char *key, unsigned long long *out) {
    char text[64];
    int result = get(key, text, sizeof text);
    if (result == OK) *out = strtoull(text, NULL, 10);
    return result;
}

/* Handles are numbers: card + 1, or MIG_BASE + card * MIGS + device. */
static void key_of(void *handle, const char *name, char *key, size_t size) {
    size_t number = (size_t)handle;
    if (number >= MIG_BASE)
        snprintf(key, size, "%zu.mig%zu.%s", (number - MIG_BASE) / MIGS, (number - MIG_BASE) % MIGS, name);
    else
        snprintf(key, size, "%zu.%s", number - 1, name);
}

static int text_of(void *handle, const char *name, char *out, unsigned size) {
    char key[64];
    key_of(handle, name, key, sizeof key);
    return get(key, out, size);
}

static int number_of(void *handle, const char *name, unsigned long long *out) {
    char key[64];
    key_of(handle, name, key, sizeof key);
    return get_number(key, out);
}

static int unsigned_of(void *handle, const char *name, unsigned *out) {
    unsigned long long value = 0;
    int result = number_of(handle, name, &value);
    if (result == OK) *out = (unsigned)value;
    return result;
}

static int pair(const char *what, void *a, void *b, int *out) {
    char key[64];
    unsigned long long value = 0;
    snprintf(key, sizeof key, "%s.%zu.%zu", what, (size_t)a - 1, (size_t)b - 1);
    int result = get_number(key, &value);
    if (result == OK) *out = (int)value;
    return result;
}

int nvmlInitWithFlags(unsigned flags) {
    unsigned long long code = OK;
    int result = get_number("init", &code);
    (void)flags;
    return result == OK || result == UNSUPPORTED ? (int)code : result;
}

int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return get("driver", out, size); }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { return get("nvml", out, size); }

/* One byte for each look, so that a test can wait for looks that nobody is told of. */
static void note_look(void) {
    char path[4096];
    const char *state = getenv("FAKE_NVML_STATE");
    if (!state) return;
    snprintf(path, sizeof path, "%s.looks", state);
    FILE *file = fopen(path, "a");
    if (!file) return;
    fputc('.', file);
    fclose(file);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    unsigned long long value = 0;
    note_look();
    if (get_number("hang", &value) == OK) sleep((unsigned)value);
    int result = get_number("count", &value);
    if (result == OK) *count = (unsigned)value;
    return result;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    char ignored[8];
    *handle = (void *)(size_t)(index + 1);
    int result = text_of(*handle, "open", ignored, sizeof ignored);
    return result == UNSUPPORTED ? OK : result;
}

int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) { return text_of(handle, "uuid", out, size); }
int nvmlDeviceGetName(void *handle, char *out, unsigned size) { return text_of(handle, "name", out, size); }
int nvmlDeviceGetSerial(void *handle, char *out, unsigned size) { return text_of(handle, "serial", out, size); }

int nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    return text_of(handle, "pci", pci->busId, sizeof pci->busId);
}

/* As the real one: version 1 counts what the driver reserves as used. */
int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *memory) {
    memory->reserved = 0;
    number_of(handle, "reserved", &memory->reserved);
    int result = number_of(handle, "total", &memory->total);
    if (result == OK) result = number_of(handle, "used", &memory->used);
    if (result == OK) memory->free = memory->total - memory->reserved - memory->used;
    return result;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    Memory2 detail = {0};
    int result = nvmlDeviceGetMemoryInfo_v2(handle, &detail);
    memory->total = detail.total;
    memory->free = detail.free;
    memory->used = detail.used + detail.reserved;
    return result;
}

int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *out) {
    (void)sensor;
    return unsigned_of(handle, "temperature", out);
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
    rates[1] = 0;
    unsigned_of(handle, "memory_busy", rates + 1);
    return unsigned_of(handle, "utilisation", rates);
}

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    return number_of(handle, "slowdown", reasons);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    return number_of(handle, "slowdown_old", reasons);
}

/* GPM: a sample is a copy of the counter; a card without one is not supported. */
int nvmlGpmQueryDeviceSupport(void *handle, unsigned *support) {
    unsigned long long ignored;
    support[1] = number_of(handle, "tensor", &ignored) == OK;
    return OK;
}

int nvmlGpmSampleAlloc(unsigned long long **sample) {
    *sample = calloc(1, sizeof **sample);
    return OK;
}

int nvmlGpmSampleFree(unsigned long long *sample) {
    free(sample);
    return OK;
}

int nvmlGpmSampleGet(void *handle, unsigned long long *sample) { return number_of(handle, "tensor", sample); }

int nvmlGpmMetricsGet(GpmMetrics *asked) {
    for (unsigned i = 0; i < asked->count; i++) {
        asked->metrics[i].result = asked->metrics[i].id == 5 ? OK : UNSUPPORTED;
        asked->metrics[i].value = (double)(*asked->after - *asked->before);
    }
    return OK;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *out) { return unsigned_of(handle, "power", out); }

int nvmlDeviceGetTotalEccErrors(void *handle, unsigned kind, unsigned counter, unsigned long long *out) {
    if (kind == 0) return counter == 0 ? number_of(handle, "ecc_corrected", out) : UNSUPPORTED;
    return number_of(handle, counter == 0 ? "ecc_volatile" : "ecc_aggregate", out);
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failure) {
    *corrected = *uncorrected = 0;
    unsigned_of(handle, "remap_correctable", corrected);
    unsigned_of(handle, "remap_uncorrectable", uncorrected);
    int result = unsigned_of(handle, "remap_pending", pending);
    return result == OK ? unsigned_of(handle, "remap_failure", failure) : result;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *wanted) {
    int result = unsigned_of(handle, "mig", current);
    *wanted = *current;
    return result;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    (void)handle;
    *count = MIGS - 1;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **out) {
    char ignored[96];
    *out = (void *)(MIG_BASE + ((size_t)handle - 1) * MIGS + index);
    return text_of(*out, "uuid", ignored, sizeof ignored) == OK ? OK : NOT_FOUND;
}

static int processes(void *handle, const char *name, unsigned *count, Process *out) {
    char text[512];
    unsigned found = 0;
    int result = text_of(handle, name, text, sizeof text);
    if (result != OK) return result;
    for (char *item = strtok(text, ","); item; item = strtok(NULL, ","), found++) {
        char *memory = strchr(item, ':') + 1;
        if (!out || found >= *count) continue;
        memset(&out[found], 0, sizeof *out);
        out[found].pid = (unsigned)strtoul(item, NULL, 10);
        out[found].memory = *memory == '-' ? ~0ULL : strtoull(memory, NULL, 10);
    }
    result = found > *count ? TOO_SMALL : OK;
    *count = found;
    return result;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *out) {
    return processes(handle, "processes", count, out);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, Process *out) {
    return processes(handle, "mps", count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, Process *out) {
    return processes(handle, "graphics", count, out);
}

int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level) { return pair("topology", a, b, level); }

int nvmlDeviceGetP2PStatus(void *a, void *b, int index, int *status) {
    return index == 2 ? pair("p2p", a, b, status) : INVALID;
}

static int port(void *handle, unsigned number, char *peer, unsigned size) {
    char name[16];
    unsigned ports = 0;
    int result = unsigned_of(handle, "ports", &ports);
    if (result != OK) return result;
    if (number >= ports) return INVALID;
    snprintf(name, sizeof name, "port%u", number);
    if (text_of(handle, name, peer, size) != OK) snprintf(peer, size, "down");
    return OK;
}

int nvmlDeviceGetNvLinkState(void *handle, unsigned number, unsigned *active) {
    char peer[32];
    int result = port(handle, number, peer, sizeof peer);
    *active = strcmp(peer, "down") != 0;
    return result;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned number, unsigned *type) {
    char peer[32];
    int result = port(handle, number, peer, sizeof peer);
    *type = strcmp(peer, "switch") ? 0 : 2;
    return result;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned number, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    return port(handle, number, pci->busId, sizeof pci->busId);
}

/* 38: CRC errors of all ports; 208: receive errors of one; 90: their speed; 91: how many; 230: the recovery action. */
static int field(void *handle, Field *field) {
    char name[24];
    switch (field->field) {
    case 38: field->type = 3; return number_of(handle, "nvlink_errors", &field->value);
    case 90: return number_of(handle, "port_mbytes", &field->value);
    case 91: return number_of(handle, "ports", &field->value);
    case 208: snprintf(name, sizeof name, "port%u_errors", field->scope); return number_of(handle, name, &field->value);
    case 230: return number_of(handle, "recovery", &field->value);
    default: return UNSUPPORTED;
    }
}

int nvmlDeviceGetFieldValues(void *handle, int count, Field *fields) {
    for (int i = 0; i < count; i++) {
        fields[i].type = 1;
        fields[i].value = 0;
        fields[i].result = field(handle, &fields[i]);
    }
    return OK;
}
