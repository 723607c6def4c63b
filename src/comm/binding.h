/* The cores to which mpirun has bound a process. */
#ifndef TU__COMM_BINDING_H
#define TU__COMM_BINDING_H

/* Without options for it, mpirun binds each of two processes to a core, and more to a socket. Undoes that, so that the
 * processes of a host can divide its cores: afterwards this process may use those that mpirun, or its daemon orted on
 * another host, may use. Does nothing if the user has chosen a binding. */
void tu__undo_default_binding(void);

#endif
