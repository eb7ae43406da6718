/* Loads, and does nothing. */
int etherwarp_stand_in(void);
int etherwarp_stand_in(void) {
  return 1;
}
