// nccl-tests' all_reduce_perf without GPUs: ranks of a real MPI that sum floats, and print nccl-tests' output.
// They sleep while waiting, so that the network is measured rather than the processors of one small machine. A node with
// the file /etc/testbed-corrupts adds errors.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAP_US 200

typedef struct {
    char host[64];
    int pid, local;
} Place;

static int rank, ranks;

static void wait_asleep(MPI_Request *request) {
    int done = 0;
    for (MPI_Test(request, &done, MPI_STATUS_IGNORE); !done; MPI_Test(request, &done, MPI_STATUS_IGNORE))
        usleep(NAP_US);
}

static void together(void) {
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    wait_asleep(&request);
}

static void sum(const void *from, float *into, int count) {
    MPI_Request request;
    MPI_Iallreduce(from, into, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    wait_asleep(&request);
}

static long bytes_of(const char *word) {
    char *unit;
    long number = strtol(word, &unit, 10);
    return number << (*unit == 'G' ? 30 : *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0);
}

static void head(long first, long last, int iterations, int warm_up) {
    Place own = {.pid = getpid()}, *all = calloc(ranks, sizeof own);
    MPI_Comm of_node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &of_node);
    MPI_Comm_rank(of_node, &own.local);
    gethostname(own.host, sizeof own.host - 1);
    MPI_Gather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank)
        return;
    printf("# nThread 1 nGpus 1 minBytes %ld maxBytes %ld step: 2(factor) warmup iters: %d iters: %d agg iters: 1 "
           "validation: 1 graph: 0\n#\n# Using devices\n", first, last, warm_up, iterations);
    for (int each = 0; each < ranks; each++)
        printf("#  Rank %2d Group  0 Pid %6d on %10s device %2d [0000:%02x:00] NVIDIA H100\n", each, all[each].pid,
               all[each].host, all[each].local, all[each].local);
    const char *debug = getenv("NCCL_DEBUG");
    if (debug && !strcmp(debug, "INFO"))
        printf("%s:%d:%d [0] NCCL INFO Using network Socket\n", own.host, own.pid, own.pid);
    printf("#\n#                                                              out-of-place                       in-place          \n"
           "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
           "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n");
    fflush(stdout);
}

// One half of a row: this many sums of `own` in every element. Returns its bus bandwidth.
static double half(int count, int iterations, int in_place, float own, long *wrong) {
    float *from = malloc(count * sizeof *from), *into = malloc(count * sizeof *into);
    long bad = 0;
    double seconds = 0;
    for (int turn = 0; turn < iterations; turn++) {
        for (int at = 0; at < count; at++)
            from[at] = into[at] = own;
        together();
        double began = MPI_Wtime();
        sum(in_place ? MPI_IN_PLACE : (const void *)from, into, count);
        together();
        seconds += MPI_Wtime() - began;
        for (int at = 0; at < count; at++)
            bad += into[at] != (float)ranks;
    }
    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    free(from);
    free(into);
    *wrong += bad;
    double each = seconds / iterations, algbw = count * sizeof(float) / each / 1e9;
    double busbw = algbw * 2 * (ranks - 1) / ranks;
    if (rank == 0)
        printf("  %8.1f  %6.4f  %6.4f %6ld", each * 1e6, algbw, busbw, bad);
    return busbw;
}

int main(int words, char **word) {
    long first = 32 << 20, last = 32 << 20, wrong = 0;
    int iterations = 20, warm_up = 1, rows = 0;
    double total = 0;
    for (int at = 1; at + 1 < words; at += 2)
        switch (word[at][1]) {
        case 'b': first = bytes_of(word[at + 1]); break;
        case 'e': last = bytes_of(word[at + 1]); break;
        case 'n': iterations = atoi(word[at + 1]); break;
        case 'w': warm_up = atoi(word[at + 1]); break;
        }
    MPI_Init(&words, &word);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    head(first, last, iterations, warm_up);
    float own = access("/etc/testbed-corrupts", F_OK) ? 1 : 2;
    for (long size = first; size <= last; size *= 2, rows++) {
        int count = size / sizeof(float);
        float *warm = calloc(count, sizeof *warm);
        for (int turn = 0; turn < warm_up; turn++)
            sum(MPI_IN_PLACE, warm, count);
        free(warm);
        if (rank == 0)
            printf("%12ld  %12d     float     sum      -1", size, count);
        total += half(count, iterations, 0, own, &wrong);
        total += half(count, iterations, 1, own, &wrong);
        if (rank == 0)
            printf("\n");
    }
    if (rank == 0)
        printf("# Out of bounds values : %ld %s\n# Avg bus bandwidth    : %g \n#\n", wrong, wrong ? "FAILED" : "OK",
               total / 2 / rows);
    MPI_Finalize();
    return wrong ? 1 : 0;
}
