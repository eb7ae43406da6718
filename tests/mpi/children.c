// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// fork, exec and system() inside ranks, with messages under way: nothing of the parent's is harmed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suite.h"

static void child(int kind, char* data, size_t length) {
  int status = -1;
  switch (kind) {
    case 0:
      status = system("true");
      break;
    case 1: {
      FILE* pipe = popen("echo hello", "r");
      char line[16] = "";
      CHECK(pipe != NULL && fgets(line, sizeof line, pipe) != NULL && strcmp(line, "hello\n") == 0, "popen: %s", line);
      status = pclose(pipe);
      break;
    }
    default: {
      const pid_t pid = fork();
      CHECK(pid >= 0, "fork");
      if (pid == 0) {  // writes to where a message is expected: its copy, not the parent's memory
        memset(data, 0xdd, length);
        _exit(7);
      }
      waitpid(pid, &status, 0);
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child's status is %x", status);
      status = 0;
    }
  }
  CHECK(status == 0, "kind %d ended with %x", kind, status);
}

void children(void) {
  static const size_t kLengths[] = {100, 10000, 30000, 200000, 2000000};
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  for (int i = 0; i < 5; ++i) {
    const size_t length = kLengths[i];
    char *out = need_memory(length), *in = need_memory(length), *next = need_memory(length);
    for (int kind = 0; kind < (full ? 9 : 3); ++kind) {
      MPI_Request requests[3];
      fill(out, length, seed_of(rank, to, (uint64_t)kind));
      memset(in, 0x55, length);
      memset(next, 0x55, length);
      MPI(MPI_Irecv(in, (int)length, MPI_BYTE, from, 1, comm, &requests[0]));
      MPI(MPI_Irecv(next, (int)length, MPI_BYTE, from, 2, comm, &requests[1]));
      MPI(MPI_Isend(out, (int)length, MPI_BYTE, to, 1, comm, &requests[2]));
      child(kind % 3, next, length);
      MPI(MPI_Wait(&requests[2], MPI_STATUS_IGNORE));
      MPI(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
      VERIFY(in, length, seed_of(from, rank, (uint64_t)kind), "message during a fork");
      // After it, into the receive that was there before.
      MPI(MPI_Isend(out, (int)length, MPI_BYTE, to, 2, comm, &requests[2]));
      MPI(MPI_Waitall(2, requests + 1, MPI_STATUSES_IGNORE));
      VERIFY(next, length, seed_of(from, rank, (uint64_t)kind), "message after a fork");
    }
    free(next);
    free(in);
    free(out);
  }
}
